// Writes the stack of every thread of this process to stderr when SIGQUIT comes, and lets the
// process go on. The launcher sends it to a hung worker before it kills it; a person may use
// `kill -QUIT PID`. Frames are addresses for `addr2line -Cfe PROGRAM`. Threads that block the
// signal are named without their stack. Thread-safe.
#pragma once

namespace pdjob {

void install_stack_dump();

}  // namespace pdjob
