#include "launcher/pool/pool_job.h"

#include <numeric>

#include "common/check.h"

namespace pdjob::launcher {

const char* to_string(PoolJobState state) {
  switch (state) {
    case PoolJobState::kQueued:
      return "queued";
    case PoolJobState::kRunning:
      return "running";
    case PoolJobState::kEnding:
      return "ending";
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
  return std::accumulate(
      shares.begin(), shares.end(), uint64_t{0},
      [](uint64_t sum, const HeldShare& held) { return sum + held.share.gpu_percent(); });
}

uint32_t Share::percent_of(const std::string& gpu) const {
  const auto part = gpu_parts.find(gpu);
  return part == gpu_parts.end() ? kWholeGpu : part->second;
}

uint64_t Share::gpu_percent() const {
  return std::accumulate(
      gpus.begin(), gpus.end(), uint64_t{0},
      [this](uint64_t sum, const std::string& gpu) { return sum + percent_of(gpu); });
}

}  // namespace pdjob::launcher
