#include "tests/simulation/sim_main.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"

namespace pdjob::simulation {
namespace {

// A person can follow a trace of so many events.
constexpr size_t kFewEvents = 50;

struct Arguments {
  uint64_t seed = 1;
  uint64_t runs = 0;  // 0 means one run, with its trace.
  uint64_t jobs = std::max(std::thread::hardware_concurrency(), 1U);  // Processes for the runs.
  bool find = false;  // A violation is what is wanted.
  std::optional<std::set<uint32_t>> only;
};

// Printed on abort: a failed PDJOB_CHECK of a core must still name the seed.
char replay_line[256];

std::string replay_of(const SimProgram& program, const SimCall& call) {
  std::string line = program.replay + " --seed " + std::to_string(call.seed);
  if (call.only) {
    const char* before = " --only ";
    for (const uint32_t event : *call.only) {
      line += before + std::to_string(event);
      before = ",";
    }
  }
  return line;
}

void remember(const SimProgram& program, const SimCall& call) {
  std::snprintf(replay_line, sizeof replay_line, "replay: %s\n", replay_of(program, call).c_str());
}

extern "C" void on_abort(int /*signal*/) {
  const ssize_t written = ::write(STDERR_FILENO, replay_line, std::strlen(replay_line));
  static_cast<void>(written);
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    std::vector<uint64_t> values;
    for (const char* at = argv[i + 1]; *at != '\0';) {
      char* end = nullptr;
      values.push_back(std::strtoull(at, &end, 10));
      if (end == at || (*end != '\0' && *end != ',')) {
        return false;
      }
      at = *end == ',' ? end + 1 : end;
    }
    if (flag == "--only") {
      arguments.only.emplace(values.begin(), values.end());
      continue;
    }
    if (values.size() != 1) {
      return false;
    }
    if (flag == "--seed" || flag == "--from") {
      arguments.seed = values[0];
    } else if (flag == "--jobs") {
      arguments.jobs = std::max<uint64_t>(values[0], 1);
    } else if (flag == "--runs" || flag == "--find") {
      arguments.runs = values[0];
      arguments.find = flag == "--find";
    } else {
      return false;
    }
  }
  return argc > 1 && argc % 2 == 1;
}

// Whether it breaks an invariant, or aborts. In a process of its own.
bool fails(const SimProgram& program, const SimCall& call) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, [](int /*signal*/) { ::_exit(1); });
    ::_exit(program.run(call).violation.empty() ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status != 0;
}

// How many events the seed draws, all of which can be left out.
uint32_t count_events(const SimProgram& program, uint64_t seed) {
  int pipe[2];
  uint32_t events = 0;
  if (::pipe(pipe) != 0) {
    return 0;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    events = program.run({.seed = seed, .only = std::set<uint32_t>()}).events;
    ::_exit(::write(pipe[1], &events, sizeof events) == sizeof events ? 0 : 1);
  }
  ::close(pipe[1]);
  const ssize_t bytes = ::read(pipe[0], &events, sizeof events);
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
  return bytes == sizeof events ? events : 0;  // 0, too, if it fails without any.
}

// Leaves out events as long as the run fails without them: first halves, then ever smaller parts
// (delta debugging: Zeller and Hildebrandt, 2002).
size_t minimise(const SimProgram& program, uint64_t seed, uint32_t events) {
  std::vector<uint32_t> kept(events);
  std::iota(kept.begin(), kept.end(), 0);
  const auto call_with = [&](const std::vector<uint32_t>& some) {
    return SimCall{.seed = seed, .only = std::set<uint32_t>(some.begin(), some.end())};
  };
  for (size_t part = std::max<size_t>(kept.size() / 2, 1); part > 0 && !kept.empty();) {
    bool smaller = false;
    for (size_t at = 0; at < kept.size();) {
      std::vector<uint32_t> fewer = kept;
      fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(at),
                  fewer.begin() + static_cast<ptrdiff_t>(std::min(at + part, kept.size())));
      if (fails(program, call_with(fewer))) {
        kept = fewer;
        smaller = true;
      } else {
        at += part;
      }
    }
    part = smaller && part == 1 ? 1 : part / 2;
  }
  std::printf("minimised to %zu of %u events: %s\n", kept.size(), events,
              replay_of(program, call_with(kept)).c_str());
  return kept.size();
}

bool report(const SimProgram& program, uint64_t seed, const SimRun& run) {
  if (run.violation.empty()) {
    return true;
  }
  std::printf("seed %llu: %s\n%s", static_cast<unsigned long long>(seed), run.violation.c_str(),
              replay_line);
  if (run.events > 0) {
    minimise(program, seed, run.events);
  }
  return false;
}

std::string told(const std::vector<std::pair<const char*, uint64_t>>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(count);
  }
  return text;
}

bool run_one(const SimProgram& program, const SimCall& call) {
  remember(program, call);
  const SimRun run = program.run(call);
  std::printf("%s; trace %016llx of %llu lines\n", told(run.counts).c_str(),
              static_cast<unsigned long long>(run.trace_hash),
              static_cast<unsigned long long>(run.trace_lines));
  if (!run.violation.empty()) {
    std::printf("%s\n", run.violation.c_str());
  }
  return run.violation.empty();
}

bool run_many(const SimProgram& program, const Arguments& arguments) {
  std::vector<std::pair<const char*, uint64_t>> sums;
  uint64_t lines = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.runs; ++seed) {
    const SimCall call{.seed = seed};
    remember(program, call);
    SimRun run = program.run(call);
    if (run.violation.empty() && program.run(call).trace_hash != run.trace_hash) {
      run.violation = "two runs of one seed differ";
      run.events = 0;
    }
    if (!report(program, seed, run)) {
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

// Splits the runs among processes. The exit code of the first that fails is the answer.
bool run_in_parts(const SimProgram& program, const Arguments& arguments) {
  std::vector<pid_t> children;
  for (uint64_t job = 0; job < arguments.jobs; ++job) {
    Arguments part = arguments;
    const uint64_t begin = arguments.runs * job / arguments.jobs;
    part.seed += begin;
    part.runs = arguments.runs * (job + 1) / arguments.jobs - begin;
    children.push_back(::fork());
    if (children.back() == 0) {
      const bool good = run_many(program, part);
      std::fflush(stdout);
      ::_exit(good ? 0 : 1);
    }
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    good = ::waitpid(child, &status, 0) == child && status == 0 && good;
  }
  return good;
}

// Each part in a process of its own: an abort counts as found, too, because the core noticed it by
// itself. Some seeds find a bug in a long story only, so it may take a few of them.
bool find_one(const SimProgram& program, uint64_t seeds) {
  constexpr int kFindsMax = 4;
  int finds = 0;
  for (uint64_t seed = 1; seed <= seeds && finds < kFindsMax; ++seed) {
    const SimCall call{.seed = seed};
    if (fails(program, call)) {
      ++finds;
      std::printf("found by seed %llu\n", static_cast<unsigned long long>(seed));
      const uint32_t events = count_events(program, seed);
      if (events == 0 || minimise(program, seed, events) < kFewEvents) {
        return true;
      }
    }
  }
  if (finds > 0) {
    return false;
  }
  std::printf("no violation in %llu seeds\n", static_cast<unsigned long long>(seeds));
  return false;
}

}  // namespace

int sim_main(int argc, char** argv, const SimProgram& program) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(
        stderr, "usage: %s --seed N [--only LIST] | --runs N [--from SEED] [--jobs J] | --find N\n",
        argv[0]);
    return 2;
  }
  std::signal(SIGABRT, on_abort);
  log::start("simulation", log::Level::kNothing);
  const bool good = arguments.find        ? find_one(program, arguments.runs)
                    : arguments.runs == 0 ? run_one(program, {.seed = arguments.seed,
                                                              .print = SimTrace::Print::kYes,
                                                              .only = arguments.only})
                    : arguments.jobs == 1 ? run_many(program, arguments)
                                          : run_in_parts(program, arguments);
  return good ? 0 : 1;
}

}  // namespace pdjob::simulation
