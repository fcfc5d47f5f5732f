// Measures how long a keeper takes to place jobs on simulated nodes, from the job file to the
// orders for its processes, and to preempt batches for a job that serves.
//
//   pool_bench [--nodes N] [--jobs N]
//
// Without arguments: 2,000 nodes of 32 cores, and 50 jobs of 30 workers with 8 cores each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/os/real_clock.h"
#include "launcher/pool/job_shares.h"
#include "launcher/pool/keeper.h"

namespace pdjob::launcher {
namespace {

Node node_of(size_t number) {
  return {.name = "pool/node-" + std::to_string(number),
          .host = "10.0.0.1",
          .cores = 32,
          .memory_bytes = uint64_t{256} << 30,
          .cluster = "pool"};
}

std::string job_file(size_t number, const char* mode) {
  return "name: job-" + std::to_string(number) + "\nmode: " + mode +
         "\nengine: {kind: fake, threads: 8}\nprefill: {workers: 10}\ndecode: {workers: 20}\n" +
         (std::string_view(mode) == "batch" ? "batch: {in: [rows.jsonl], out: results}\n"
                                            : "router: {listen: '0.0.0.0:0'}\n");
}

class Bench {
 public:
  explicit Bench(size_t nodes) {
    for (size_t i = 0; i < nodes; ++i) {
      keeper_.step(NodeJoined{node_of(i), {}, {}}, now_, effects_);
    }
    pass();
  }

  // Seconds until it runs, or has made others end.
  double submit(size_t number, const char* mode) {
    auto config = read_pool_job("bench.yaml", job_file(number, mode), places_);
    if (!config) {
      std::fprintf(stderr, "%s", config.error().message.c_str());
      std::exit(1);
    }
    PoolJobOrder order = *order_of(*config);
    order.text = config->text;
    order.source = "bench.yaml";
    const Instant begin = real_now();
    keeper_.step(JobSubmitted{order}, now_, effects_);
    pass();
    return seconds(real_now() - begin);
  }
  const Keeper& keeper() const { return keeper_; }

 private:
  void pass() {
    now_ += std::chrono::seconds(1);
    keeper_.step(TimePassed{}, now_, effects_);
    effects_.clear();
  }

  const Places places_;
  Instant now_{std::chrono::hours(1)};
  std::vector<KeeperEffect> effects_;
  Keeper keeper_{{.first_port = 1024, .last_port = 65000},
                 [this](const PoolJobOrder& order,
                        const std::vector<Node>& free) -> Result<std::vector<Share>> {
                   auto config = read_pool_job(order.source, order.text, places_);
                   return config ? shares_of(*config, free)
                                 : Result<std::vector<Share>>(config.error());
                 },
                 {.root = "bench"},
                 now_};
};

void measure(size_t nodes, size_t jobs) {
  Bench bench(nodes);
  std::vector<double> times;
  for (size_t i = 0; i < jobs; ++i) {
    times.push_back(bench.submit(i, "batch"));
  }
  std::ranges::sort(times);
  const auto running =
      std::ranges::count(bench.keeper().ledger().jobs, PoolJobState::kRunning, &PoolJob::state);
  std::printf(
      "%zu nodes, %zu jobs, %td of them run: a job is placed in %.0f ms (median), %.0f ms "
      "(most)\n",
      nodes, jobs, running, 1e3 * times[jobs / 2], 1e3 * times.back());
  double most = 0;
  for (size_t i = jobs; i < 4096; ++i) {
    most = std::max(most, bench.submit(i, "serve"));
    const auto& all = bench.keeper().ledger().jobs;
    const auto ending = std::ranges::count(all, PoolJobState::kEnding, &PoolJob::state);
    if (ending > 0) {
      std::printf("job %zu preempts %td batches; the slowest of those that serve took %.0f ms\n", i,
                  ending, 1e3 * most);
      return;
    }
  }
}

int run(int argc, char** argv) {
  size_t nodes = 2000;
  size_t jobs = 50;
  for (int i = 1; i + 1 < argc; i += 2) {
    (std::string_view(argv[i]) == "--nodes" ? nodes : jobs) =
        std::strtoul(argv[i + 1], nullptr, 10);
  }
  measure(nodes, jobs);
  return 0;
}

}  // namespace
}  // namespace pdjob::launcher

int main(int argc, char** argv) { return pdjob::launcher::run(argc, argv); }
