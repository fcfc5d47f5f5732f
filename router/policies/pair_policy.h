// PairPolicy picks one of several workers of one stage for a request. One policy picks the decode
// worker of a pair, another one its prefill worker. A new policy needs a file pair and a line in
// make_policy, or a plug-in (policy_plugin.h). Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/id.h"
#include "common/random.h"
#include "common/result.h"
#include "router/config/router_config.h"
#include "router/prefix_index/kv_knowledge.h"

namespace pdjob::router {

struct Candidate {
  WorkerId id;
  uint64_t load = 0;       // In tokens; comparable among the workers of one stage.
  uint64_t name_hash = 0;  // name_hash() of its name. A restart keeps it, but changes `id`.
  const char* name = "";   // Not owned.
  uint32_t requests = 0;   // Of this router, under way there.
  // Leading blocks of the prompt that it could load: from the store of its machine, and from any.
  uint32_t stored_near = 0;
  uint32_t stored = 0;
};

// The facts that policies know of a request.
struct PromptFacts {
  uint64_t tokens = 0;               // Estimated.
  std::span<const uint64_t> blocks;  // prompt_blocks(); empty if no policy wants them.
  uint64_t session = 0;              // name_hash() of the session; 0: none.
};

struct Chosen {
  WorkerId worker;
  uint64_t cached_tokens = 0;  // Prompt tokens that it probably need not compute.
};

class PairPolicy {
 public:
  virtual ~PairPolicy() = default;

  // Requires: `candidates` is not empty and ascends by id. A policy that compares candidates takes
  // the lower id among equals. The router may drop the choice, for instance if the other worker of
  // the pair has no room. So choose() changes nothing; note_sent() records a choice that was used.
  virtual Chosen choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                        Random& random) const = 0;
  // The prompt was sent to the chosen worker.
  virtual void note_sent(const PromptFacts& /*prompt*/, WorkerId /*worker*/) {}
  // The worker has finished with the prompt, or failed. Called once per note_sent().
  virtual void note_ended(const PromptFacts& /*prompt*/, WorkerId /*worker*/) {}
  // False: a random part of a large fleet is enough to choose from.
  virtual bool needs_all() const { return true; }
  // True if the policy reads PromptFacts::blocks.
  virtual bool wants_blocks() const { return false; }
};

// `kv`: what engines report of their caches; null if none is followed. It must outlive the policy.
// Requires: `kind` is not kPlugin.
std::unique_ptr<PairPolicy> make_policy(PolicyKind kind, KvKnowledge* kv = nullptr);

struct Policies {
  std::unique_ptr<KvKnowledge> kv;  // If the config has events.
  std::unique_ptr<PairPolicy> prefill;
  std::unique_ptr<PairPolicy> decode;
};
// Fails if a plug-in cannot be used.
Result<Policies> open_policies(const RouterConfig& config);

}  // namespace pdjob::router
