// The body of vLLM's POST /inference/v1/generate (vllm 0.31.0): `token_ids` of one prompt, and
// sampling_params with vLLM's names. Without max_tokens it fills the context. Pure.
#pragma once

#include "openai/openai.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

// Reads all fields but those of the hand-over, which all forms share.
void read_tokens_request(const Fields& fields, ApiRequest& request);

}  // namespace pdjob::openai
