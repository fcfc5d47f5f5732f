// Simulates merged Ray clusters alone (ray_world.h). For the arguments see sim_main.h.
#include "tests/simulation/ray_world.h"
#include "tests/simulation/sim_main.h"

int main(int argc, char** argv) {
  using namespace pdjob::simulation;
  return sim_main(argc, argv, {.replay = "./dev sim ray", .run = simulate_ray});
}
