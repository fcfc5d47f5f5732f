// PairPolicy: which of several workers of one stage takes a request. A pair is the choice of one
// policy for its decode worker and of another for its prefill worker. Adding a policy takes a file
// pair and a line in make_policy, or a plug-in (policy_plugin.h). Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/id.h"
#include "common/random.h"
#include "common/result.h"
#include "router/kv_knowledge.h"
#include "router/router_config.h"

namespace pdjob::router {

struct Candidate {
  WorkerId id;
  uint64_t load = 0;       // Tokens; comparable among the workers of one stage.
  uint64_t name_hash = 0;  // name_hash() of its name, which its successor has, too.
  const char* name = "";   // Not owned.
  uint32_t requests = 0;   // Of this router, under way there.
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
  // It is done there, in whatever way.
  virtual void note_ended(const Prompt& /*prompt*/, WorkerId /*worker*/) {}
  // It looks at Prompt::blocks.
  virtual bool wants_blocks() const { return false; }
};

// `kv`: what engines say of their caches, if they do; it must outlive the policy. Requires: not
// kPlugin.
std::unique_ptr<PairPolicy> make_policy(PolicyKind kind, KvKnowledge* kv = nullptr);

struct Policies {
  std::unique_ptr<KvKnowledge> kv;  // Where the config has events.
  std::unique_ptr<PairPolicy> prefill;
  std::unique_ptr<PairPolicy> decode;
};
// An error: a plug-in that cannot be used.
Result<Policies> open_policies(const RouterConfig& config);

}  // namespace pdjob::router
