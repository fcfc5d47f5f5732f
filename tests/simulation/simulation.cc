// Simulates whole jobs (sim_world.h). For the arguments see sim_main.h.
#include "tests/simulation/sim_main.h"
#include "tests/simulation/sim_world.h"

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  return sim_main(argc, argv,
                  {.replay = "./dev sim", .run = [](uint64_t seed, SimTrace::Print print) {
                     const RunResult result = simulate({.seed = seed, .print = print});
                     const Clients::Counts& counts = result.counts;
                     return SimRun{.violation = result.violation,
                                   .trace_hash = result.trace_hash,
                                   .trace_lines = result.trace_lines,
                                   .counts = {{"served", counts.served},
                                              {"failed", counts.failed},
                                              {"refused", counts.refused},
                                              {"aborted", counts.aborted},
                                              {"left", counts.left},
                                              {"kills", counts.kills},
                                              {"blamed", counts.blamed}}};
                   }});
}
