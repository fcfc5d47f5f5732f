// PairPolicy: which of several workers of one stage takes a request. A pair is the choice of one
// policy for its decode worker and of another for its prefill worker. Policies see ids and loads,
// nothing else; adding one takes a file pair and a line in make_policy. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/id.h"
#include "common/random.h"
#include "router/router_config.h"

namespace pdjob::router {

struct Candidate {
  WorkerId id;
  uint64_t load = 0;  // Tokens; comparable among the workers of one stage.
};

class PairPolicy {
 public:
  virtual ~PairPolicy() = default;

  // Requires: not empty, ascending by id. Equal candidates are decided by the lower id.
  virtual WorkerId choose(std::span<const Candidate> candidates, Random& random) = 0;
};

std::unique_ptr<PairPolicy> make_policy(PolicyKind kind);

}  // namespace pdjob::router
