#include "router/core/pair_suspicions.h"

#include <algorithm>

namespace pdjob::router {

std::string why_avoided(PairFault fault) {
  return fault == PairFault::kDamaged
             ? "KV from one to the other was damaged, or an audit found it wrong"
             : "the hand-over fails, and other pairs then answer the same requests well";
}

void PairSuspicions::note(WorkerId prefill, WorkerId decode, PairFault fault, Instant now) {
  std::erase_if(suspicions_,
                [now](const auto& entry) { return entry.second.last + kRememberedFor <= now; });
  Suspicion& suspicion =
      suspicions_.try_emplace({prefill, decode}, Suspicion{.first = now}).first->second;
  suspicion.fault = fault;
  suspicion.last = now;
  suspicion.lasts = now - suspicion.first >= kLastsAfter;
  if (fault == PairFault::kDamaged || suspicion.lasts) {
    suspicion.until = now + kAvoidedFor;
  }
}

void PairSuspicions::note_good(WorkerId prefill, WorkerId decode) {
  const auto found = suspicions_.find({prefill, decode});
  if (found != suspicions_.end() && found->second.fault == PairFault::kFailed) {
    suspicions_.erase(found);
  }
}

bool PairSuspicions::avoided(WorkerId prefill, WorkerId decode, Instant now) const {
  const auto found = suspicions_.find({prefill, decode});
  return found != suspicions_.end() && now < found->second.until;
}

void PairSuspicions::forget(const std::vector<WorkerId>& gone) {
  std::erase_if(suspicions_, [&](const auto& entry) {
    return std::ranges::count(gone, entry.first.first) > 0 ||
           std::ranges::count(gone, entry.first.second) > 0;
  });
}

std::vector<PairSuspicions::Pair> PairSuspicions::pairs(Instant now) const {
  std::vector<Pair> all;
  for (const auto& [pair, suspicion] : suspicions_) {
    if (now < suspicion.until) {
      all.push_back({suspicion, pair.first, pair.second});
    }
  }
  return all;
}

}  // namespace pdjob::router
