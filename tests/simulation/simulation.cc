// simulation --seed N               one run, with its trace
// simulation --runs N [--from SEED] many runs, each made twice; the first that breaks an invariant
// ends it, with exit code 1
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

#include "tests/simulation/sim_world.h"

namespace pdjob::simulation {
namespace {

struct Arguments {
  uint64_t seed = 1;
  uint64_t runs = 0;  // 0: one run, with its trace.
};

// A PDJOB_CHECK of a core aborts the process: the seed must be told all the same.
char replay_line[64];

void remember_seed(uint64_t seed) {
  std::snprintf(replay_line, sizeof replay_line, "replay: ./dev sim --seed %llu\n",
                static_cast<unsigned long long>(seed));
}

extern "C" void on_abort(int /*signal*/) {
  const ssize_t written = ::write(STDERR_FILENO, replay_line, std::strlen(replay_line));
  static_cast<void>(written);
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    char* end = nullptr;
    const uint64_t value = i + 1 < argc ? std::strtoull(argv[i + 1], &end, 10) : 0;
    if (end == nullptr || end == argv[i + 1] || *end != '\0') {
      return false;
    }
    if (flag == "--seed" || flag == "--from") {
      arguments.seed = value;
    } else if (flag == "--runs") {
      arguments.runs = value;
    } else {
      return false;
    }
  }
  return argc > 1;
}

bool report(uint64_t seed, const RunResult& result) {
  if (result.violation.empty()) {
    return true;
  }
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), result.violation.c_str());
  std::printf("%s", replay_line);
  return false;
}

bool run_one(uint64_t seed) {
  remember_seed(seed);
  const RunResult result = simulate({.seed = seed, .print = SimTrace::Print::kYes});
  const Clients::Counts& counts = result.counts;
  std::printf(
      "served %u, failed %u, refused %u, aborted %u, left %u; trace %016llx of %llu lines\n",
      counts.served, counts.failed, counts.refused, counts.aborted, counts.left,
      static_cast<unsigned long long>(result.trace_hash),
      static_cast<unsigned long long>(result.trace_lines));
  return report(seed, result);
}

bool run_many(const Arguments& arguments) {
  Clients::Counts sum;
  uint64_t lines = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.runs; ++seed) {
    remember_seed(seed);
    RunResult result = simulate({.seed = seed});
    if (result.violation.empty() && simulate({.seed = seed}).trace_hash != result.trace_hash) {
      result.violation = "two runs of one seed differ";
    }
    if (!report(seed, result)) {
      return false;
    }
    lines += result.trace_lines;
    sum.served += result.counts.served;
    sum.failed += result.counts.failed;
    sum.refused += result.counts.refused;
    sum.aborted += result.counts.aborted;
    sum.left += result.counts.left;
  }
  std::printf(
      "%llu seeds from %llu: served %u, failed %u, refused %u, aborted %u, left %u; %llu trace "
      "lines\n",
      static_cast<unsigned long long>(arguments.runs),
      static_cast<unsigned long long>(arguments.seed), sum.served, sum.failed, sum.refused,
      sum.aborted, sum.left, static_cast<unsigned long long>(lines));
  return true;
}

}  // namespace
}  // namespace pdjob::simulation

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: simulation --seed N | --runs N [--from SEED]\n");
    return 2;
  }
  std::signal(SIGABRT, on_abort);
  const bool good = arguments.runs == 0 ? run_one(arguments.seed) : run_many(arguments);
  return good ? 0 : 1;
}
