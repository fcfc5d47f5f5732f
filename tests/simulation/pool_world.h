// A simulated pool: a keeper and the agents of three machines, for jobs that come at any time and
// want more than there is. Keeper, roster, sessions and the ledger's bytes are the production code.
// The doubles are the shells, the disk, the placer, and the processes of the jobs, which only live
// and die. Keepers are killed at any step, also between the ledger and what it tells of; agents are
// killed, stopped and cut off, processes die, jobs are cancelled.
//
// Batches of one name follow each other, also on warm workers.
//
// No core of a machine is ever promised twice, no job ever has two launchers or less than it needs.
// After the last fault, each job runs, has ended or wants too much. After all are cancelled, the
// machines are empty.
#pragma once

#include "tests/simulation/sim_main.h"

namespace pdjob::simulation {

SimRun simulate_pool(const SimCall& call);

}  // namespace pdjob::simulation
