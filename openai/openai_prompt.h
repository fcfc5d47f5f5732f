// The prompt of a request: a chat's messages and tools, or prompts as text or as token ids. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

void read_messages(const Fields& fields, ApiRequest& request);
// Reads text, or a list of parts with text, from the field of this name. `types`: what a part's
// type may be.
void read_content(const Fields& fields, const std::string& name,
                  std::span<const std::string_view> types, std::string& out);

// Finds the object with the name and the parameters of a function, in a tool, a call or a choice.
using FunctionOf = std::optional<Fields> (*)(const Fields&);
// It is the member `function`.
std::optional<Fields> inner_function(const Fields& fields);
// tools, tool_choice and parallel_tool_calls. The structure of the output must have been read.
void read_tools(const Fields& fields, FunctionOf function_of, ApiRequest& request);
// The name of a function.
void read_tool_name(const Fields& function, std::string& out);
// The id of a call.
void read_id(const Fields& fields, const char* name, std::string& out);

// Passes each object of a list to `read`, until there is a problem.
void read_objects(const Fields& fields, const char* name, size_t most,
                  const std::function<void(const Fields&)>& read);

// One prompt or a list of them, from the field of this name.
void read_prompts(const Fields& fields, const char* name, ApiRequest& request);

}  // namespace pdjob::openai
