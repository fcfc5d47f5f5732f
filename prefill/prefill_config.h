// How a prefill worker batches. Value.
#pragma once

#include <cstdint>

#include "common/config_reader.h"

namespace pdjob::prefill {

struct PrefillConfig {
  uint32_t chunk_tokens =
      256;  // Of one prompt in one step; the KV of a chunk moves while the next is computed.
  uint32_t requests_queued = 256;  // Beyond: 503.
  bool prefix_cache =
      true;  // Free sequences keep the rows of their prompts (worker/prompt_cache.h).
};

// Declares the keys of `prefill:` that are about batching.
void read(ConfigReader& in, PrefillConfig& config);

}  // namespace pdjob::prefill
