#include "router/policies/plugin_policy.h"

#include <algorithm>
#include <vector>

#include "common/os/dynamic_library.h"

namespace pdjob::router {
namespace {

pdjob_policy_prompt as_c(const PromptFacts& prompt) {
  return {.tokens = prompt.tokens,
          .session = prompt.session,
          .blocks = prompt.blocks.data(),
          .blocks_count = prompt.blocks.size()};
}

}  // namespace

Result<std::unique_ptr<PairPolicy>> PluginPolicy::open(const std::string& library, Stage stage,
                                                       const std::string& options) {
  PDJOB_TRY(const DynamicLibrary loaded, DynamicLibrary::open(library));
  const pdjob_policy_v1* (*plugin_of)() = nullptr;
  if (!loaded.load("pdjob_policy_v1", plugin_of)) {
    return Error{ErrorCode::kUnsupported, library +
                                              " is no policy plug-in: it has no function "
                                              "pdjob_policy_v1 (router/policies/policy_plugin.h)"};
  }
  const pdjob_policy_v1* plugin = plugin_of();
  if (plugin == nullptr || plugin->open == nullptr || plugin->close == nullptr ||
      plugin->choose == nullptr) {
    return Error{ErrorCode::kUnsupported, library + " lacks open, close or choose"};
  }
  void* policy = plugin->open(stage == Stage::kPrefill ? PDJOB_POLICY_PREFILL : PDJOB_POLICY_DECODE,
                              options.c_str());
  if (policy == nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 library + " does not open with policy_options \"" + options + "\""};
  }
  return std::unique_ptr<PairPolicy>(new PluginPolicy(*plugin, policy));
}

PluginPolicy::~PluginPolicy() { plugin_.close(policy_); }

Chosen PluginPolicy::choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                            Random& random) const {
  std::vector<pdjob_policy_candidate> in_c;
  in_c.reserve(candidates.size());
  for (const Candidate& candidate : candidates) {
    in_c.push_back({.worker = candidate.id.value,
                    .name = candidate.name,
                    .load_tokens = candidate.load,
                    .requests = candidate.requests});
  }
  const pdjob_policy_prompt asked = as_c(prompt);
  const pdjob_policy_choice choice =
      plugin_.choose(policy_, &asked, in_c.data(), in_c.size(), random.next());
  if (choice.candidate >= candidates.size()) {
    return fallback_.choose(prompt, candidates, random);
  }
  return {.worker = candidates[choice.candidate].id,
          .cached_tokens = std::min(choice.cached_tokens, prompt.tokens)};
}

void PluginPolicy::note_sent(const PromptFacts& prompt, WorkerId worker) {
  if (plugin_.note_sent != nullptr) {
    const pdjob_policy_prompt sent = as_c(prompt);
    plugin_.note_sent(policy_, &sent, worker.value);
  }
}

}  // namespace pdjob::router
