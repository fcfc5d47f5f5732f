// Shared by the simulators' programs.
//
//   PROGRAM --seed N               runs once and prints the trace
//   PROGRAM --seed N --only LIST   the same with these of its events alone, such as 3,17
//   PROGRAM --runs N [--from SEED] runs N seeds, each twice, on all cores; --jobs J: on J
//   PROGRAM --find N               succeeds if one of N seeds breaks an invariant, and if fewer
//   than
//                                  50 of its events suffice: for mutants
//
// The first run that breaks an invariant ends the program, with exit code 1. It is minimised: the
// program says which few of its events suffice.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/sim_trace.h"

namespace pdjob::simulation {

struct SimRun {
  std::string violation;
  uint64_t trace_hash = 0;
  uint64_t trace_lines = 0;
  uint32_t events = 0;  // Those that it can do without; 0: it is not minimised.
  std::vector<std::pair<const char*, uint64_t>> counts;  // Every run uses the same names.
};

struct SimCall {
  uint64_t seed = 0;
  SimTrace::Print print = SimTrace::Print::kNo;
  std::optional<std::set<uint32_t>> only;
};

struct SimProgram {
  std::string replay;  // The command line to which --seed is added.
  std::function<SimRun(const SimCall& call)> run;
};

// Returns the exit code.
int sim_main(int argc, char** argv, const SimProgram& program);

}  // namespace pdjob::simulation
