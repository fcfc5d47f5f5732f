#include "router/core/bypass.h"

#include <utility>

namespace pdjob::router {

const char* to_string(BypassReason reason) {
  switch (reason) {
    case BypassReason::kShort:
      return "short";
    case BypassReason::kIdle:
      return "idle";
  }
  return "unknown";
}

bool bypasses_always(const RouterConfig& config, uint64_t tokens) {
  return tokens < config.bypass_tokens;
}

std::optional<BypassReason> bypass(const RouterConfig& config, const BypassFacts& facts) {
  if (bypasses_always(config, facts.tokens)) {
    return BypassReason::kShort;
  }
  // The decode worker computes the prompt in the time that the prefill worker needs for as many
  // tokens. By then, this prompt's turn would not have come there.
  const bool waits = !facts.tokens_before || *facts.tokens_before >= facts.tokens;
  if (facts.tokens < config.bypass_idle_tokens && facts.decode_idle && waits) {
    return BypassReason::kIdle;
  }
  return std::nullopt;
}

}  // namespace pdjob::router
