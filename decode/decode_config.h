// How a decode worker batches. Value.
#pragma once

#include <cstdint>

#include "common/config/config_reader.h"

namespace pdjob::decode {

// A GPU computes short chunks no faster than long ones. A CPU does, so its decode workers take
// short ones, which hold the streams up less (docs/measurements/serving.md).
inline constexpr uint32_t kLongChunk = 128;
inline constexpr uint32_t kShortChunk = 96;

struct DecodeConfig {
  // Tokens per step of prompts computed here. Bounds what they add to the inter-token latency of
  // all requests. While no request decodes, a step has up to four times as many. 0: kLongChunk, and
  // kShortChunk in a decode worker of a job whose CPU computes.
  uint32_t local_chunk_tokens = 0;
  uint32_t requests_queued = 256;  // Further requests get 503.
  // By so large a part may a step get longer for requests in the background
  // (worker/batching/spare_room.h).
  double background_slowdown = 0.08;
  // Free sequences keep the rows of their prompts (worker/batching/prompt_cache.h).
  bool prefix_cache = true;
};

// Declares the keys of `decode:` that are about batching.
void read(ConfigReader& in, DecodeConfig& config);

}  // namespace pdjob::decode
