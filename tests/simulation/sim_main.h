// What the simulators' programs share:
//   PROGRAM --seed N               one run, with its trace
//   PROGRAM --runs N [--from SEED] many runs, each made twice; the first that breaks an invariant
//   ends it, with exit code 1
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/sim_trace.h"

namespace pdjob::simulation {

struct SimRun {
  std::string violation;
  uint64_t trace_hash = 0;
  uint64_t trace_lines = 0;
  std::vector<std::pair<const char*, uint64_t>> counts;  // The same names in each run.
};

struct SimProgram {
  const char* replay;  // The command that takes --seed.
  std::function<SimRun(uint64_t seed, SimTrace::Print print)> run;
};

// The exit code.
int sim_main(int argc, char** argv, const SimProgram& program);

}  // namespace pdjob::simulation
