// `pdjob doctor`: whether this machine has what a job needs. The shell of findings.h.
#pragma once

namespace pdjob::launcher {

enum class DoctorForm { kText, kJson };

// Prints on stdout; returns the exit code: kExitFailed with a problem that would stop a job. Waits
// for programs, each for at most 60 s.
int examine_machine(DoctorForm form);

}  // namespace pdjob::launcher
