// Simulated Ray clusters, and the sessions of one or two jobs that want more of them than there may
// be. The cores are the production code. The doubles are Ray, its shim and the agents: shims die,
// answer late and in any order, a home does not answer, nodes, agents and guests are lost, guests
// are full or refuse, launchers are killed. In the end each job has all its nodes at some time, and
// every reservation and every guest's job has been given back.
#pragma once

#include "tests/simulation/sim_main.h"

namespace pdjob::simulation {

SimRun simulate_ray(const SimCall& call);

}  // namespace pdjob::simulation
