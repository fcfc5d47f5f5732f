// How a decode worker batches. Value.
#pragma once

#include <cstdint>

#include "common/config/config_reader.h"

namespace pdjob::decode {

struct DecodeConfig {
  // Tokens per step of prompts computed here. Bounds what they add to the inter-token latency of
  // all requests. While no request decodes, a step has up to four times as many.
  uint32_t local_chunk_tokens = 128;
  uint32_t requests_queued = 256;  // Further requests get 503.
  // Free sequences keep the rows of their prompts (worker/core/prompt_cache.h).
  bool prefix_cache = true;
};

// Declares the keys of `decode:` that are about batching.
void read(ConfigReader& in, DecodeConfig& config);

}  // namespace pdjob::decode
