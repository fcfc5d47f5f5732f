// The first process of a container (PID 1) becomes the parent of every process whose own parent has
// ended, and must reap them: the kernel keeps each as a zombie until then.
#pragma once

#include <sys/types.h>

namespace pdjob {

// If this process is the first one, it goes on in a child. This process reaps, passes signals on,
// and ends as the child does. Requires: one thread, no open file that the child must not have.
void reap_if_first_process();

// Reaps every child until `main` has ended. Passes signals on to it, except those that a terminal
// sends to both. Returns its exit code, or 128 and its signal. Requires: all signals are blocked.
int reap_until_end_of(pid_t main);

}  // namespace pdjob
