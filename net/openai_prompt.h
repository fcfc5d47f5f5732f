// The prompt of a request: a chat's messages or a completion's prompts. Pure.
#pragma once

#include "net/openai.h"
#include "net/openai_fields.h"

namespace pdjob::net {

void read_messages(const Fields& fields, ApiRequest& request);
void read_prompt(const Fields& fields, ApiRequest& request);

}  // namespace pdjob::net
