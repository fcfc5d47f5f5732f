// The fields that ask for structure: JSON schemas, grammars, regular expressions, lists of choices,
// as OpenAI, vLLM, SGLang and llama.cpp name them. Pure.
#pragma once

#include <string>
#include <string_view>

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

// The structure of chats and completions, whichever field names it. A request has at most one.
void read_structure(const Fields& fields, ApiRequest& request);

// A schema is JSON or a string of JSON.
void read_schema(const Fields& fields, std::string_view name, SamplingParams& sampling);
// A field that asks for any JSON object.
void read_any_object(const Fields& fields, std::string_view name, SamplingParams& sampling);
void read_grammar(const Fields& fields, std::string_view name, SamplingParams& sampling);
void read_regex(const Fields& fields, std::string_view name, SamplingParams& sampling);
// vLLM's structured_outputs.
void read_structured_outputs(const Fields& fields, SamplingParams& sampling);

}  // namespace pdjob::openai
