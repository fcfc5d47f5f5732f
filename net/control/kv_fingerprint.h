// WorkerEntry::fingerprint: "MEANING" of an engine whose GPU computes, and "MEANING-KERNELS" of one
// whose CPU does. Kernels of two CPUs may write other bits for the same prompt. A GPU's KV has
// other bits than any CPU's, so a GPU may hand over to every CPU, as its job file asks for. Pure.
#pragma once

#include <string_view>
#include <utility>

namespace pdjob::net {

// True if KV and tokens of one mean the same to the other.
inline bool same_kv(std::string_view one, std::string_view other) {
  const auto parts = [](std::string_view fingerprint) {
    const size_t dash = fingerprint.find('-');
    const bool has_kernels = dash != std::string_view::npos;
    return std::pair(fingerprint.substr(0, dash),
                     has_kernels ? fingerprint.substr(dash + 1) : std::string_view());
  };
  const auto [meaning, kernels] = parts(one);
  const auto [other_meaning, other_kernels] = parts(other);
  return meaning == other_meaning &&
         (kernels.empty() || other_kernels.empty() || kernels == other_kernels);
}

}  // namespace pdjob::net
