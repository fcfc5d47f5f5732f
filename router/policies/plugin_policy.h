// A policy in a shared library (policy_plugin.h). Its answers are checked: an invalid choice falls
// back to the least loaded worker.
#pragma once

#include <string>

#include "common/result.h"
#include "router/policies/least_loaded_policy.h"
#include "router/policies/pair_policy.h"
#include "router/policies/policy_plugin.h"
#include "router/policies/worker_table.h"

namespace pdjob::router {

class PluginPolicy final : public PairPolicy {
 public:
  // The library stays loaded for good. kUnsupported: it cannot be loaded, or has no usable plug-in.
  // kInvalidArgument: it rejects `options`.
  static Result<std::unique_ptr<PairPolicy>> open(const std::string& library, Stage stage,
                                                  const std::string& options);
  PluginPolicy(const PluginPolicy&) = delete;
  PluginPolicy& operator=(const PluginPolicy&) = delete;
  ~PluginPolicy() override;

  Chosen choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  void note_sent(const PromptFacts& prompt, WorkerId worker) override;
  bool wants_blocks() const override { return plugin_.wants_blocks != 0; }

 private:
  PluginPolicy(const pdjob_policy_v1& plugin, void* policy) : plugin_(plugin), policy_(policy) {}

  const pdjob_policy_v1& plugin_;
  void* const policy_;
  const LeastLoadedPolicy fallback_;
};

}  // namespace pdjob::router
