// The prompt of a request: a chat's messages or a completion's prompts. Pure.
#pragma once

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

void read_messages(const Fields& fields, ApiRequest& request);
void read_prompt(const Fields& fields, ApiRequest& request);

}  // namespace pdjob::openai
