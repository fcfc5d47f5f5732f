// One worker for each session, by rendezvous hashing (Thaler and Ravishankar, 1996). When a worker
// comes or goes, only its own sessions move, and several routers agree without messages. A request
// without a session goes to the least loaded worker. Pure.
#pragma once

#include "router/policies/least_loaded_policy.h"
#include "router/policies/pair_policy.h"

namespace pdjob::router {

class ConsistentHashPolicy final : public PairPolicy {
 public:
  Chosen choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                Random& random) const override;

 private:
  LeastLoadedPolicy without_session_;
};

}  // namespace pdjob::router
