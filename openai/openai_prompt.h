// The prompt of a request: a chat's messages and tools, or prompts as text or as token ids. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

// Finds the object with the name and the parameters of a function, in a tool, a call or a choice.
using FunctionOf = std::optional<Fields> (*)(const Fields&);
// It is the member `function`.
std::optional<Fields> inner_function(const Fields& fields);
// tools, tool_choice and parallel_tool_calls; of a chat also functions and function_call. The
// structure of the output must have been read.
void read_tools(const Fields& fields, FunctionOf function_of, ApiRequest& request);
// One prompt or a list of them, from the field of this name.
void read_prompts(const Fields& fields, const char* name, ApiRequest& request);

void read_tool_name(const Fields& function, std::string& out);
// Passes each object of a list to `read`, until one is wrong.
void read_objects(const Fields& fields, const char* name, size_t most,
                  const std::function<void(const Fields&)>& read);

// The messages of a chat (openai_messages.cc).
void read_messages(const Fields& fields, ApiRequest& request);
// Text, or a list of parts with text, from the field of this name. What is allowed goes by the
// message's role.
void read_content(const Fields& fields, const char* name, ApiMessage& message);
// The name and the arguments of a function that was called.
void read_call(const Fields& function, ApiToolCall& call);
// The id of a call.
void read_id(const Fields& fields, const char* name, std::string& out);
// Gives results of calls what templates read: the role "tool", and the name of the tool.
void complete_results(std::vector<ApiMessage>& messages);
// chat_template_kwargs, add_generation_prompt and continue_final_message. The messages must have
// been read.
void read_template(const Fields& fields, ApiRequest& request);
// How much a model is to think, from the field of this name. What the template was given already
// stays.
void read_effort(const Fields& fields, const char* name, ApiTemplate& out);

}  // namespace pdjob::openai
