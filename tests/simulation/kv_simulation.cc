// Simulates KV transfers alone (kv_world.h). For the arguments see sim_main.h.
#include "tests/simulation/kv_world.h"
#include "tests/simulation/sim_main.h"

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  return sim_main(argc, argv, {.replay = "./dev sim kv", .run = [](const SimCall& call) {
                                 const KvRunResult result =
                                     simulate_kv({.seed = call.seed, .print = call.print});
                                 return SimRun{.violation = result.violation,
                                               .trace_hash = result.trace_hash,
                                               .trace_lines = result.trace_lines,
                                               .counts = {{"done", result.done},
                                                          {"failed", result.failed},
                                                          {"released late", result.released_late},
                                                          {"blocks kept", result.blocks_kept},
                                                          {"blocks read", result.blocks_read},
                                                          {"loaded", result.blocks_loaded},
                                                          {"missing", result.blocks_missing},
                                                          {"not loaded", result.blocks_failed}}};
                               }});
}
