// How a prefill worker batches. Value.
#pragma once

#include <cstdint>

#include "common/config/config_reader.h"

namespace pdjob::prefill {

struct PrefillConfig {
  // Tokens of prompts per step. The KV of a chunk moves while the next is computed.
  uint32_t chunk_tokens = 256;
  uint32_t requests_queued = 256;  // Further requests get 503.
  // Free sequences keep the rows of their prompts (worker/batching/prompt_cache.h).
  bool prefix_cache = true;
};

// Declares the keys of `prefill:` that are about batching.
void read(ConfigReader& in, PrefillConfig& config);

}  // namespace pdjob::prefill
