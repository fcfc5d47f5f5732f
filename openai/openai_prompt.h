// The prompt of a request: a chat's messages and tools, or prompts as text or as token ids. Pure.
#pragma once

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

void read_messages(const Fields& fields, ApiRequest& request);
// tools, tool_choice and parallel_tool_calls. The structure of the output must have been read.
void read_tools(const Fields& fields, ApiRequest& request);
// One prompt or a list of them, from the field of this name.
void read_prompts(const Fields& fields, const char* name, ApiRequest& request);

}  // namespace pdjob::openai
