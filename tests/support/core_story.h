// A worker core told as a story. Each step's effects come back as words. The engine answers each
// batch with one token for each choice that wanted one, unless the test decides otherwise.
#pragma once

#include <memory>
#include <set>
#include <utility>

#include "tests/support/worker_words.h"

namespace pdjob::worker {

class CoreStory {
 public:
  explicit CoreStory(std::unique_ptr<WorkerCore> core) : core_(std::move(core)) {}

  Words step(const Event& event) {
    std::vector<Effect> effects;
    core_->step(event, now, effects);
    for (const Effect& effect : effects) {
      if (const auto* run = std::get_if<RunStep>(&effect)) {
        running_ = *run;
      }
    }
    return words(effects);
  }

  Words arrive(RequestArrived request) { return step(request); }
  Words cancel(uint64_t request) { return step(RequestCancelled{RequestId{request}}); }
  Words drain() { return step(DrainAsked{}); }
  Words sleep(Duration duration) {
    now += duration;
    return step(TimePassed{});
  }
  // Returns the batch that the core wants to run now.
  Words run() { return step(EngineFree{}); }
  // Reports that the batch ran. The choices in `stopped` (request, choice) sampled an end token.
  Words ran(const std::set<std::pair<uint64_t, uint32_t>>& stopped = {}) {
    StepFinished outcome;
    for (const BatchItem& item : std::exchange(running_, {}).items) {
      for (uint32_t choice = item.choice; choice < item.choice + item.samples; ++choice) {
        outcome.sampled.push_back({.request = item.request,
                                   .choice = choice,
                                   .stopped = stopped.contains({item.request.value, choice})});
      }
    }
    return step(outcome);
  }
  Words step_failed() { return step(StepFailed{{ErrorCode::kInternal, "the engine failed"}}); }
  Words run_and_finish() {
    run();
    return ran();
  }
  Words tail_sampled(uint64_t request, uint32_t choices = 1) {
    TailSampled outcome;
    for (uint32_t choice = 0; choice < choices; ++choice) {
      outcome.sampled.push_back({.request = RequestId{request}, .choice = choice});
    }
    return step(outcome);
  }
  Words awaited(uint64_t request, bool awaited = true) {
    return step(OfferAwaited{.request = RequestId{request}, .awaited = awaited});
  }
  Words offer_ended(uint64_t request) { return step(OfferEnded{RequestId{request}}); }
  Words rows_fetched(uint64_t request) { return step(RowsFetched{RequestId{request}}); }
  Words fetch_failed(uint64_t request, bool region_safe = true) {
    return step(
        FetchFailed{RequestId{request}, {ErrorCode::kUnavailable, "the link broke"}, region_safe});
  }
  Words fetch_released(uint64_t request) { return step(FetchReleased{RequestId{request}}); }

  const WorkerCore& core() const { return *core_; }
  bool idle() const {
    const CoreLoad load = core_->load();
    return load.requests_running == 0 && load.requests_queued == 0 && load.rows_used == 0 &&
           load.tokens_queued == 0;
  }

  Instant now{std::chrono::hours(1)};

 private:
  std::unique_ptr<WorkerCore> core_;
  RunStep running_;
};

}  // namespace pdjob::worker
