// Simulates whole jobs (sim_world.h). --scenario NAME chooses a file of tests/simulation/scenarios;
// the first argument, if any. For the others see sim_main.h.
#include <cstdio>
#include <cstring>

#include "tests/simulation/sim_main.h"
#include "tests/simulation/sim_world.h"

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  std::string name = "everyday";
  if (argc > 2 && std::strcmp(argv[1], "--scenario") == 0) {
    name = argv[2];
    argv[2] = argv[0];
    argv += 2;
    argc -= 2;
  }
  const auto scenario = read_scenario(std::string(PDJOB_SCENARIOS) + "/" + name + ".yaml");
  if (!scenario) {
    std::fprintf(stderr, "%s\n", scenario.error().message.c_str());
    return 2;
  }
  return sim_main(argc, argv, {.replay = "./dev sim " + name, .run = [&](const SimCall& call) {
                                 const RunResult result = simulate({.scenario = *scenario,
                                                                    .seed = call.seed,
                                                                    .print = call.print,
                                                                    .sabotage = {},
                                                                    .only = call.only});
                                 const SimClients::Counts& counts = result.counts;
                                 return SimRun{
                                     .violation = result.violation,
                                     .trace_hash = result.trace_hash,
                                     .trace_lines = result.trace_lines,
                                     .events = result.events,
                                     .counts = {{"served", counts.served},
                                                {"failed", counts.failed},
                                                {"refused", counts.refused},
                                                {"aborted", counts.aborted},
                                                {"left", counts.left},
                                                {"kills", counts.kills},
                                                {"blamed", counts.blamed},
                                                {"starts", result.job.starts},
                                                {"probes", result.job.probes},
                                                {"nodes lost", result.nodes_lost},
                                                {"launchers died", result.launchers_died},
                                                {"retired", result.job.retired},
                                                {"replaced", result.slow_replaced},
                                                {"failing replaced", result.failing_replaced},
                                                {"accepted", result.later.accepted},
                                                {"answered later", result.later.answered},
                                                {"failed later", result.later.failed},
                                                {"deleted", result.later.deleted},
                                                {"tokens cached", counts.tokens_cached},
                                                {"from cache", counts.from_cache}}};
                               }});
}
