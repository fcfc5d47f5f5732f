// All exit codes of pdjob.
#pragma once

namespace pdjob {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;      // The job failed.
inline constexpr int kExitUsage = 2;       // Bad configuration or usage; nothing was started.
inline constexpr int kExitNotPlaced = 3;   // The cluster could not place the job.
inline constexpr int kExitRowsFailed = 4;  // Of a batch: it ended, but some rows have no answer.
inline constexpr int kExitInterrupted = 130;

}  // namespace pdjob
