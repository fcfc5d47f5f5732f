// The process of a job that has its Batch API: `pdjob batch-server`, started by the launcher.
#pragma once

#include "batch/config/batch_api_config.h"
#include "common/time.h"
#include "net/control/process_spec.h"

namespace pdjob::batch {

struct BatchMemberOptions {
  net::ProcessSpec spec;
  BatchApiConfig config;
  Duration row_timeout{};  // Of one attempt of a row.
  Duration drain_timeout{};
};

// Returns the exit code (common/exit_code.h).
int run_batch_member(const BatchMemberOptions& options);

}  // namespace pdjob::batch
