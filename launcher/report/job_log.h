// Writes one log line for each event and effect of the Job core, so that the launcher's log is its
// trace. Skips heartbeats.
#pragma once

#include "launcher/job/job.h"

namespace pdjob::launcher {

void log_event(const Event& event);
void log_effect(const Effect& effect);

}  // namespace pdjob::launcher
