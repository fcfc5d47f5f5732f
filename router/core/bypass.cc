#include "router/core/bypass.h"

#include <utility>

namespace pdjob::router {

const char* to_string(BypassReason reason) {
  switch (reason) {
    case BypassReason::kSharedCores:
      return "shared_cores";
    case BypassReason::kShort:
      return "short";
    case BypassReason::kWaits:
      return "waits";
    case BypassReason::kBusy:
      return "busy";
    case BypassReason::kPromptOnly:
      return "prompt_only";
  }
  return "unknown";
}

std::optional<BypassReason> bypasses_always(const RouterConfig& config, uint64_t tokens,
                                            bool shares_cores) {
  if (tokens < config.bypass_tokens) {
    return BypassReason::kShort;
  }
  return config.decode_prefills == DecodePrefills::kAuto && shares_cores
             ? std::optional(BypassReason::kSharedCores)
             : std::nullopt;
}

bool spills(const RouterConfig& config, uint32_t prefill_requests,
            std::optional<uint32_t> decode_requests) {
  return config.bypass_busy_requests > 0 &&
         (!decode_requests ||
          *decode_requests >= uint64_t{prefill_requests} + config.bypass_busy_requests);
}

std::optional<BypassReason> bypass(const RouterConfig& config, const BypassFacts& facts) {
  if (config.decode_prefills == DecodePrefills::kAuto ||
      config.decode_prefills == DecodePrefills::kNever) {
    return std::nullopt;
  }
  // A prefill worker without room has no number to compare.
  const uint64_t own = config.decode_prefills == DecodePrefills::kWaiting ? facts.tokens : 0;
  const bool sooner = facts.prefill_before ? facts.decode_before + own <= *facts.prefill_before
                                           : facts.decode_before == 0;
  return sooner ? std::optional(BypassReason::kWaits) : std::nullopt;
}

}  // namespace pdjob::router
