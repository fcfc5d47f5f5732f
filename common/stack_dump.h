// Writes the stack of every thread of this process to stderr when SIGQUIT comes, and lets the
// process go on: the launcher asks a hung worker so before it kills it, and so may anybody by
// `kill -QUIT PID`. Frames are addresses for `addr2line -Cfe PROGRAM`. Threads that block the
// signal are named without their stack. Thread-safe.
#pragma once

namespace pdjob {

void install_stack_dump();

}  // namespace pdjob
