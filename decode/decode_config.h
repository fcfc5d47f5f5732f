// How a decode worker batches. Value.
#pragma once

#include <cstdint>

#include "common/config_reader.h"

namespace pdjob::decode {

struct DecodeConfig {
  uint32_t local_chunk_tokens =
      128;  // Of prompts computed here, in one step: bounds what they add to everybody's ITL.
  uint32_t requests_queued = 256;  // Beyond: 503.
  bool prefix_cache =
      true;  // Free sequences keep the rows of their prompts (worker/prompt_cache.h).
};

// Declares the keys of `decode:` that are about batching.
void read(ConfigReader& in, DecodeConfig& config);

}  // namespace pdjob::decode
