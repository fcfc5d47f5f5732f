// Simulates the keeper of a pool and its agents alone (pool_world.h). For the arguments see
// sim_main.h.
#include "tests/simulation/pool_world.h"
#include "tests/simulation/sim_main.h"

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  return sim_main(argc, argv, {.replay = "./dev sim pool", .run = simulate_pool});
}
