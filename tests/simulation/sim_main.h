// Shared by the simulators' programs.
//
//   PROGRAM --seed N               runs once and prints the trace
//   PROGRAM --runs N [--from SEED] runs N seeds, each twice
//   PROGRAM --find N               succeeds if one of N seeds breaks an invariant: for mutants
//
// The first run that breaks an invariant ends the program, with exit code 1.
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
  std::vector<std::pair<const char*, uint64_t>> counts;  // Every run uses the same names.
};

struct SimProgram {
  const char* replay;  // The command line to which --seed is added.
  std::function<SimRun(uint64_t seed, SimTrace::Print print)> run;
};

// Returns the exit code.
int sim_main(int argc, char** argv, const SimProgram& program);

}  // namespace pdjob::simulation
