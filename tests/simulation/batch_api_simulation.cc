// Simulates the Batch API alone (batch_api_world.h). For the arguments see sim_main.h.
#include "tests/simulation/batch_api_world.h"
#include "tests/simulation/sim_main.h"

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  return sim_main(argc, argv, {.replay = "./dev sim batch_api", .run = simulate_batch_api});
}
