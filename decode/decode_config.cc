#include "decode/decode_config.h"

#include "common/limits.h"

namespace pdjob::decode {

void read(ConfigReader& in, DecodeConfig& config) {
  in.field("local_chunk_tokens", config.local_chunk_tokens,
           {.doc = "Tokens of prompts computed by the decode worker itself in one step: what they "
                   "may add to everybody's ITL. While nobody decodes, four times as many.",
            .unit = "tokens"},
           {.min = 4, .max = 65536});
  in.field("requests_queued", config.requests_queued,
           {.doc = "Requests that wait in one decode worker; beyond, it answers 503."},
           {.min = 1, .max = limits::kRequestsQueuedMax});
  in.field("prefix_cache", config.prefix_cache,
           {.doc = "As in `prefill`, of prompts that the decode worker computes itself."});
}

}  // namespace pdjob::decode
