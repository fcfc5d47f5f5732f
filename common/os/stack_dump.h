// On SIGQUIT, writes the stack of every thread of this process to stderr; the process continues.
// The launcher sends SIGQUIT to a hung worker before it kills it. A person may use `kill -QUIT
// PID`. Frames are addresses for `addr2line -Cfe PROGRAM`. Threads that block the signal are named
// without their stack. Thread-safe.
#pragma once

namespace pdjob {

void install_stack_dump();

}  // namespace pdjob
