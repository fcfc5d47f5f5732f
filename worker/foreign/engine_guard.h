// The guard of an engine of another make: a process between a worker and its engine. The engine's
// own processes may leave its process group, and nothing else would end them after a kill -9 of the
// worker. The guard ends when the engine ends, in the same way, and takes along every process that
// the engine left. SIGTERM goes on to the engine alone.
#pragma once

#include <string>
#include <vector>

#include "common/files/fd.h"
#include "common/result.h"
#include "net/loop/child_process.h"

namespace pdjob::worker {

// How a worker and its guard talk.
struct Pipe {
  net::Fd reading;
  net::Fd writing;
};
Result<Pipe> open_pipe();

// The program `pdjob guard-engine CHANNEL PROGRAM ARGUMENTS...`. `channel` is the reading end of a
// pipe: when its other end closes, all processes of the engine are killed. Returns an exit code.
int run_engine_guard(int channel, const std::vector<std::string>& command);

// Makes processes that lose their parent children of this process, so that end_children() finds
// them.
void adopt_orphans();
// Kills every child of this process, and theirs, until there are none.
void end_children();

// Ends this process as another one ended: by the same signal, without a core dump. Returns the exit
// code of one that ended by itself.
int end_as(const net::ChildExit& exit);

}  // namespace pdjob::worker
