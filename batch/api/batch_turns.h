// Decides which batch of the Batch API does what next. Tenants take turns: the next batch to run is
// of the tenant that has the fewest running; of those, the oldest. Pure.
//
//   kWaiting ──> kPreparing ──> kPrepared ──> kRunning ──> kStopping ──> kPrepared
//      ^                            │            └────────────────────────^
//      └──── (a failure) ───────────└──> kFinishing
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pdjob::batch {

enum class Stage { kWaiting, kPreparing, kPrepared, kRunning, kStopping, kFinishing };
enum class Ending { kNone, kCompleted, kExpired, kCancelled };

struct LiveBatch {
  std::string id;
  std::string tenant;
  Stage stage = Stage::kWaiting;
  bool all_ended = false;  // Its rows.
  bool cancelling = false;
  int64_t expires_at = 0;  // Seconds since 1970.
  int64_t not_before = 0;  // The same: after a failure.
};

struct TurnLimits {
  size_t preparing_max = 2;
  size_t running_max = 4;
  size_t alive_max = 16;   // Beyond kWaiting; those that are to end come in besides.
  bool disk_full = false;  // Nothing runs.
};

enum class Step { kPrepare, kRun, kStop, kFinish };
struct BatchStep {
  std::string id;
  Step step = Step::kPrepare;
  Ending ending = Ending::kNone;  // Of kFinish.
};

// `batches`: in order of their making.
std::vector<BatchStep> next_steps(const std::vector<LiveBatch>& batches, const TurnLimits& limits,
                                  int64_t now);

}  // namespace pdjob::batch
