#include "router/core/pair_suspicions.h"

#include <algorithm>

namespace pdjob::router {

void PairSuspicions::note(WorkerId prefill, WorkerId decode, Instant now) {
  std::erase_if(until_, [now](const auto& entry) { return entry.second <= now; });
  until_[{prefill, decode}] = now + kAvoidedFor;
}

bool PairSuspicions::avoided(WorkerId prefill, WorkerId decode, Instant now) const {
  const auto found = until_.find({prefill, decode});
  return found != until_.end() && now < found->second;
}

void PairSuspicions::forget(const std::vector<WorkerId>& gone) {
  std::erase_if(until_, [&](const auto& entry) {
    return std::ranges::count(gone, entry.first.first) > 0 ||
           std::ranges::count(gone, entry.first.second) > 0;
  });
}

std::vector<PairSuspicions::Pair> PairSuspicions::pairs(Instant now) const {
  std::vector<Pair> all;
  for (const auto& [pair, until] : until_) {
    if (now < until) {
      all.push_back({.prefill = pair.first, .decode = pair.second, .until = until});
    }
  }
  return all;
}

}  // namespace pdjob::router
