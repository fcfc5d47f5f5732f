// The body of SGLang's own POST /generate (sglang 0.5.23). It takes `input_ids` or `text`, and
// sampling_params. Unknown fields are ignored, as SGLang does. A field that pdjob lacks is refused
// where its value would change the reply. Pure.
#pragma once

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

// Reads all fields but those of the hand-over, which all forms share.
void read_sglang_request(const Fields& fields, ApiRequest& request);

}  // namespace pdjob::openai
