// The prompt of a request: a chat's messages and tools, or prompts as text or as token ids. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

// tools, tool_choice and parallel_tool_calls, or functions and function_call. The structure of the
// output must have been read.
void read_tools(const Fields& fields, ApiRequest& request);
// One prompt or a list of them, from the field of this name.
void read_prompts(const Fields& fields, const char* name, ApiRequest& request);

// The object `function` of a tool, a call or a choice.
std::optional<Fields> read_function(const Fields& fields);
void read_tool_name(const Fields& function, std::string& out);
// Passes each object of a list to `read`, until there is a problem.
void read_objects(const Fields& fields, const char* name, size_t most,
                  const std::function<void(const Fields&)>& read);

// The messages of a chat (openai_messages.cc).
void read_messages(const Fields& fields, ApiRequest& request);
// chat_template_kwargs, add_generation_prompt and continue_final_message. The messages must have
// been read.
void read_template(const Fields& fields, ApiRequest& request);

}  // namespace pdjob::openai
