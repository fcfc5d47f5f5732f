#include "batch/api/batch_turns.h"

#include <algorithm>
#include <map>

namespace pdjob::batch {
namespace {

Ending ending_of(const LiveBatch& batch, int64_t now) {
  return batch.cancelling          ? Ending::kCancelled
         : batch.all_ended         ? Ending::kCompleted
         : now >= batch.expires_at ? Ending::kExpired
                                   : Ending::kNone;
}

size_t count_of(const std::vector<LiveBatch>& batches, Stage stage) {
  return static_cast<size_t>(std::ranges::count(batches, stage, &LiveBatch::stage));
}

}  // namespace

std::vector<BatchStep> next_steps(const std::vector<LiveBatch>& batches, const TurnLimits& limits,
                                  int64_t now) {
  std::vector<BatchStep> steps;
  std::vector<const LiveBatch*> ready;
  std::map<std::string, size_t> running;  // By tenant; those that stop, too.
  size_t preparing = count_of(batches, Stage::kPreparing);
  size_t running_now = 0;
  size_t alive = batches.size() - count_of(batches, Stage::kWaiting);
  for (const LiveBatch& batch : batches) {
    const Ending ending = ending_of(batch, now);
    switch (batch.stage) {
      case Stage::kWaiting:
        if (preparing < limits.preparing_max && now >= batch.not_before &&
            (alive < limits.alive_max || ending != Ending::kNone)) {
          ++preparing;
          ++alive;
          steps.push_back({batch.id, Step::kPrepare});
        }
        break;
      case Stage::kPrepared:
        if (ending != Ending::kNone) {
          steps.push_back({batch.id, Step::kFinish, ending});
        } else if (now >= batch.not_before && !limits.disk_full) {
          ready.push_back(&batch);
        }
        break;
      case Stage::kRunning:
        if (ending == Ending::kCancelled || ending == Ending::kExpired || limits.disk_full) {
          steps.push_back({batch.id, Step::kStop});
        }
        [[fallthrough]];
      case Stage::kStopping:
        ++running[batch.tenant];
        ++running_now;
        break;
      case Stage::kPreparing:
      case Stage::kFinishing:
        break;
    }
  }
  while (!ready.empty() && running_now < limits.running_max) {
    const auto next = std::ranges::min_element(
        ready, {}, [&](const LiveBatch* batch) { return running[batch->tenant]; });
    steps.push_back({(*next)->id, Step::kRun});
    ++running[(*next)->tenant];
    ++running_now;
    ready.erase(next);
  }
  return steps;
}

}  // namespace pdjob::batch
