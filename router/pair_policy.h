// PairPolicy: which of several workers of one stage takes a request. A pair is the choice of one
// policy for its decode worker and of another for its prefill worker. Adding a policy takes a file
// pair and a line in make_policy. Pure.
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
  uint64_t name = 0;  // name_hash() of its name, which its successor has, too.
};

// What policies know of a request.
struct Prompt {
  uint64_t tokens = 0;               // Estimated.
  std::span<const uint64_t> blocks;  // prompt_blocks(); empty where no policy wants them.
  uint64_t session = 0;              // name_hash() of the session; 0: none.
};

struct Chosen {
  WorkerId worker;
  uint64_t cached_tokens = 0;  // Of the prompt: it need not compute them, as far as is known.
};

class PairPolicy {
 public:
  virtual ~PairPolicy() = default;

  // Requires: not empty, ascending by id. Equal candidates are decided by the lower id. What is
  // chosen may come to nothing, because the other half of the pair has no room.
  virtual Chosen choose(const Prompt& prompt, std::span<const Candidate> candidates,
                        Random& random) const = 0;
  // The prompt was sent to what was chosen.
  virtual void note_sent(const Prompt& /*prompt*/, WorkerId /*worker*/) {}
};

std::unique_ptr<PairPolicy> make_policy(PolicyKind kind);

}  // namespace pdjob::router
