// Simulates the Job core alone (job_world.h). For the arguments see sim_main.h.
#include "tests/simulation/job_world.h"
#include "tests/simulation/sim_main.h"

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  return sim_main(argc, argv,
                  {.replay = "./dev sim job", .run = [](uint64_t seed, SimTrace::Print print) {
                     const JobRunResult result =
                         simulate_job({.seed = seed, .print = print, .event = {}, .effects = {}});
                     return SimRun{.violation = result.violation,
                                   .trace_hash = result.trace_hash,
                                   .trace_lines = result.trace_lines,
                                   .counts = {{"starts", result.spawns},
                                              {"probes", result.probes},
                                              {"nodes lost", result.nodes_lost},
                                              {"retired", result.retired}}};
                   }});
}
