// Whether one worker alone serves a request, because a hand-over would not pay. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "router/config/router_config.h"

namespace pdjob::router {

enum class BypassReason {
  kSharedCores,  // A prefill worker would compute the prompt on the same cores.
  kShort,        // So little is left to compute that a hand-over costs more.
  kWaits,        // The prompt would wait for its prefill worker: RouterConfig::decode_prefills.
  kBusy,         // The decode worker has much to do, and the prefill worker little.
  kPromptOnly,   // There is nothing to decode: a prefill worker alone serves it.
};
const char* to_string(BypassReason reason);

struct BypassFacts {
  uint64_t tokens = 0;  // Of the prompt, without those that the decode worker has. An estimate.
  // Tokens of prompts that the decode worker computes before this one.
  uint64_t decode_before = 0;
  // The same of the prefill worker. Empty: none has room.
  std::optional<uint64_t> prefill_before = {};
};

// Why no prefill worker needs to be chosen: the prompt is short, or the decode worker
// `shares_cores`. Empty: one does.
std::optional<BypassReason> bypasses_always(const RouterConfig& config, uint64_t tokens,
                                            bool shares_cores);

// True if the prefill worker alone serves the request. `decode_requests`: of its decode worker, or
// of the least busy one that has no room; empty: there is none.
bool spills(const RouterConfig& config, uint32_t prefill_requests,
            std::optional<uint32_t> decode_requests);

// Empty: hand over. Requires: bypasses_always() was empty, and there is a prefill worker,
// whether it has room or not.
std::optional<BypassReason> bypass(const RouterConfig& config, const BypassFacts& facts);

}  // namespace pdjob::router
