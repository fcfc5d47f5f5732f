// Whether a decode worker alone serves a request, because a hand-over would not pay. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "router/config/router_config.h"

namespace pdjob::router {

enum class BypassReason {
  kShort,  // So little is left to compute that a hand-over costs more.
  kIdle,   // The prompt would wait for its prefill worker while the decode worker has no work.
};
const char* to_string(BypassReason reason);

struct BypassFacts {
  uint64_t tokens = 0;  // Of the prompt, without those that the decode worker has. An estimate.
  bool decode_idle = false;  // The decode worker has no request, as far as is known.
  // Tokens that the prefill worker computes before this prompt. Empty: none has room.
  std::optional<uint64_t> tokens_before = {};
};

// The prompt is so short that no prefill worker needs to be chosen.
bool bypasses_always(const RouterConfig& config, uint64_t tokens);

// Empty: hand over. Requires: there is a prefill worker, whether it has room or not.
std::optional<BypassReason> bypass(const RouterConfig& config, const BypassFacts& facts);

}  // namespace pdjob::router
