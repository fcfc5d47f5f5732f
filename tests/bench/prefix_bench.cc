// prefix_bench TRACE prints each policy's share of cache hits over 64 workers, and the time of a
// decision. Then it does the same with workers that evict. Routers know their caches from what they
// sent, or from their events.
#include <cstdio>

#include "router/policies/prefix_aware_policy.h"
#include "tests/support/prefix_trace.h"

namespace pdjob::router {
namespace {

void show(const char* name, const ReplayResult& result) {
  std::printf(
      "%-36s %5.1f %% of the bound   missed %4.1f %%   wait P99 %6.2f s   busiest/mean %.2f   "
      "decision P99 %5.1f "
      "us\n",
      name, 100 * result.hits / result.bound, 100 * result.missed, result.wait_p99_seconds,
      result.tokens_max_to_mean, result.decision_p99_micros);
}

int run(const char* path) {
  const auto trace = load_trace(path);
  size_t blocks = 0;
  for (const TracedPrompt& prompt : trace) {
    blocks += prompt.blocks.size();
  }
  const auto round_robin = make_policy(PolicyKind::kRoundRobin);
  const ReplayResult base = replay(trace, *round_robin, {});
  std::printf("%zu requests, %zu blocks; one cache that forgets nothing would find %.1f %%\n",
              trace.size(), blocks, 100 * base.bound);
  show("round_robin", base);
  show("least_loaded", replay(trace, *make_policy(PolicyKind::kLeastLoaded), {}));
  for (const uint32_t entries : {20'000U, 50'000U, 200'000U, 1U << 20}) {
    PrefixAwarePolicy policy(entries);
    const std::string name = "prefix_aware " + std::to_string(entries);
    show(name.c_str(), replay(trace, policy, {}));
  }
  for (const size_t routers : {1U, 4U}) {
    for (const size_t cache : {250U, 500U, 1000U}) {
      const std::string name = std::to_string(routers) + " x caches of " + std::to_string(cache);
      Replay how{.cache_blocks = cache};
      show((name + ", history").c_str(), replay_prefix_aware(trace, routers, false, how));
      show((name + ", events").c_str(), replay_prefix_aware(trace, routers, true, how));
      how.tokens_first = true;
      show((name + ", tokens first").c_str(), replay_prefix_aware(trace, routers, true, how));
    }
  }
  return 0;
}

}  // namespace
}  // namespace pdjob::router

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: prefix_bench TRACE (tests/data/README.md)\n");
    return 2;
  }
  return pdjob::router::run(argv[1]);
}
