#include "decode/decode_config.h"

#include <string>

#include "common/limits.h"

namespace pdjob::decode {

namespace {

constexpr uint32_t kChunkMin = 4;

}  // namespace

void read(ConfigReader& in, DecodeConfig& config) {
  in.field(
      "local_chunk_tokens", config.local_chunk_tokens,
      {.doc = "Tokens of prompts computed by the decode worker itself in one step: what they "
              "may add to everybody's ITL. While nobody decodes, four times as many. 0: 96 where a "
              "CPU computes, 128 where a GPU does, and in workers with both roles.",
       .unit = "tokens"},
      {.min = 0, .max = 65536});
  if (config.local_chunk_tokens > 0 && config.local_chunk_tokens < kChunkMin) {
    in.fail("local_chunk_tokens", "must be 0, or at least " + std::to_string(kChunkMin));
  }
  in.field("requests_queued", config.requests_queued,
           {.doc = "Requests that wait in one decode worker; beyond, it answers 503."},
           {.min = 1, .max = limits::kRequestsQueuedMax});
  in.field("background_slowdown", config.background_slowdown,
           {.doc = "By so large a part may a step with other requests get longer for requests in "
                   "the background (rows of batches, `service_tier: flex`). 0: these get only "
                   "the steps without others, and one token in 64 steps."},
           {.min = 0.0, .max = 10.0});
  in.field("prefix_cache", config.prefix_cache,
           {.doc = "As in `prefill`, of prompts that the decode worker computes itself."});
}

}  // namespace pdjob::decode
