// The messages of a chat, and how its template is filled. Pure.
#pragma once

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

void read_messages(const Fields& fields, ApiRequest& request);
// chat_template_kwargs, add_generation_prompt and continue_final_message. The messages must have
// been read.
void read_template(const Fields& fields, ApiRequest& request);

}  // namespace pdjob::openai
