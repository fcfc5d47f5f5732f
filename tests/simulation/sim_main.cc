#include "tests/simulation/sim_main.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "common/log.h"

namespace pdjob::simulation {
namespace {

struct Arguments {
  uint64_t seed = 1;
  uint64_t runs = 0;  // 0 means one run, with its trace.
  bool find = false;  // A violation is what is wanted.
};

// Printed on abort: a failed PDJOB_CHECK of a core must still name the seed.
char replay_line[64];

void remember_seed(const SimProgram& program, uint64_t seed) {
  std::snprintf(replay_line, sizeof replay_line, "replay: %s --seed %llu\n", program.replay,
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
    } else if (flag == "--runs" || flag == "--find") {
      arguments.runs = value;
      arguments.find = flag == "--find";
    } else {
      return false;
    }
  }
  return argc > 1;
}

bool report(uint64_t seed, const SimRun& run) {
  if (run.violation.empty()) {
    return true;
  }
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), run.violation.c_str());
  std::printf("%s", replay_line);
  return false;
}

std::string told(const std::vector<std::pair<const char*, uint64_t>>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(count);
  }
  return text;
}

bool run_one(const SimProgram& program, uint64_t seed) {
  remember_seed(program, seed);
  const SimRun run = program.run(seed, SimTrace::Print::kYes);
  std::printf("%s; trace %016llx of %llu lines\n", told(run.counts).c_str(),
              static_cast<unsigned long long>(run.trace_hash),
              static_cast<unsigned long long>(run.trace_lines));
  return report(seed, run);
}

bool run_many(const SimProgram& program, const Arguments& arguments) {
  std::vector<std::pair<const char*, uint64_t>> sums;
  uint64_t lines = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.runs; ++seed) {
    remember_seed(program, seed);
    SimRun run = program.run(seed, SimTrace::Print::kNo);
    if (run.violation.empty() &&
        program.run(seed, SimTrace::Print::kNo).trace_hash != run.trace_hash) {
      run.violation = "two runs of one seed differ";
    }
    if (!report(seed, run)) {
      return false;
    }
    lines += run.trace_lines;
    sums.resize(run.counts.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = {run.counts[i].first, sums[i].second + run.counts[i].second};
    }
  }
  std::printf("%llu seeds from %llu: %s; %llu trace lines\n",
              static_cast<unsigned long long>(arguments.runs),
              static_cast<unsigned long long>(arguments.seed), told(sums).c_str(),
              static_cast<unsigned long long>(lines));
  return true;
}

// An abort counts as found, too: the core noticed by itself.
bool find_one(const SimProgram& program, uint64_t seeds) {
  std::signal(SIGABRT, [](int /*signal*/) { ::_exit(0); });
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    remember_seed(program, seed);
    const SimRun run = program.run(seed, SimTrace::Print::kNo);
    if (!report(seed, run)) {
      return true;
    }
  }
  std::printf("no violation in %llu seeds\n", static_cast<unsigned long long>(seeds));
  return false;
}

}  // namespace

int sim_main(int argc, char** argv, const SimProgram& program) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: %s --seed N | --runs N [--from SEED] | --find N\n", argv[0]);
    return 2;
  }
  std::signal(SIGABRT, on_abort);
  log::start("simulation", log::Level::kError);
  const bool good = arguments.find        ? find_one(program, arguments.runs)
                    : arguments.runs == 0 ? run_one(program, arguments.seed)
                                          : run_many(program, arguments);
  return good ? 0 : 1;
}

}  // namespace pdjob::simulation
