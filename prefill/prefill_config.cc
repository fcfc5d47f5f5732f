#include "prefill/prefill_config.h"

#include "common/limits.h"

namespace pdjob::prefill {

void read(ConfigReader& in, PrefillConfig& config) {
  in.field(
      "chunk_tokens", config.chunk_tokens,
      {.doc = "The most prompt tokens of one step, over all its prompts; a chunk's KV moves while "
              "the next is computed.",
       .unit = "tokens"},
      {.min = 4, .max = 65536});
  in.field("requests_queued", config.requests_queued,
           {.doc = "Requests that wait in one prefill worker; beyond, it answers 503."},
           {.min = 1, .max = limits::kRequestsQueuedMax});
  in.field("prefix_cache", config.prefix_cache,
           {.doc = "Keep the KV of a prompt until its sequence is needed: a prompt that begins "
                   "like it is computed from where they differ."});
}

}  // namespace pdjob::prefill
