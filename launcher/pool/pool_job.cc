#include "launcher/pool/pool_job.h"

#include <numeric>

#include "common/check.h"
#include "launcher/placement/node.h"

namespace pdjob::launcher {

const char* to_string(PoolJobState state) {
  switch (state) {
    case PoolJobState::kQueued:
      return "queued";
    case PoolJobState::kRunning:
      return "running";
    case PoolJobState::kEnding:
      return "ending";
    case PoolJobState::kWarm:
      return "warm";
    case PoolJobState::kEnded:
      return "ended";
  }
  PDJOB_CHECK(false, static_cast<int>(state));
}

uint64_t PoolJob::cores() const {
  return std::accumulate(
      shares.begin(), shares.end(), uint64_t{0},
      [](uint64_t sum, const HeldShare& held) { return sum + held.share.cores; });
}

uint64_t PoolJob::gpu_percent() const {
  return std::accumulate(shares.begin(), shares.end(), uint64_t{0},
                         [](uint64_t sum, const HeldShare& held) {
                           return sum + percent_of_all(held.share.gpus, held.share.gpu_parts);
                         });
}

}  // namespace pdjob::launcher
