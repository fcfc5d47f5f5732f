#include "batch/api/batch_lifecycle.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::batch {

bool can_cancel(const BatchRecord& batch) {
  return batch.cancelling_at == 0 && !batch.ended() && batch.state != BatchState::kFinalizing;
}

void BatchLifecycle::step(const LifecycleEvent& event, Instant now,
                          std::vector<LifecycleEffect>& effects) {
  if (const auto* world = std::get_if<WorldSeen>(&event)) {
    world_ = *world;
    seen_at_ = now;
  }
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(now - seen_at_);
  Turn turn{world_.unix_seconds + since.count(), effects};
  std::visit([&](const auto& one) { take(one, turn); }, event);
  move_on(turn);
}

BatchLifecycle::Live& BatchLifecycle::live(const std::string& id) {
  return lives_.at(numbers_.at(id));
}

uint64_t BatchLifecycle::store(const BatchRecord& batch, Turn& turn) {
  turn.effects.emplace_back(StoreRecord{batch, ++changes_});
  return changes_;
}

// ---- Events

void BatchLifecycle::take(const BatchAdded& event, Turn& /*turn*/) {
  PDJOB_CHECK(!event.batch.ended(), event.batch.id);
  const auto [place, fresh] = lives_.emplace(event.batch.number, Live{.batch = event.batch});
  PDJOB_CHECK(fresh && numbers_.emplace(event.batch.id, event.batch.number).second, event.batch.id);
}

void BatchLifecycle::take(const CancelAsked& event, Turn& turn) {
  BatchRecord& batch = live(event.id).batch;
  PDJOB_CHECK(can_cancel(batch), event.id);
  batch.state = BatchState::kCancelling;
  batch.cancelling_at = turn.now;
  store(batch, turn);
}

void BatchLifecycle::take(const JobPrepared& event, Turn& turn) {
  Live& one = live(event.id);
  PDJOB_CHECK(one.stage == Stage::kPreparing, event.id);
  if (!event.errors.empty()) {
    one.batch.state = BatchState::kFailed;
    one.batch.errors = event.errors;
    one.batch.ended_at = turn.now;
    return end(one.batch, {}, turn);
  }
  one.stage = Stage::kPrepared;
  one.all_ended = event.all_ended;
  if (one.batch.in_progress_at == 0) {
    one.batch.in_progress_at = turn.now;
    one.batch.total = event.total;
    one.batch.model = event.model;
    if (one.batch.state == BatchState::kValidating) {
      one.batch.state = BatchState::kInProgress;
    }
    store(one.batch, turn);
  }
}

void BatchLifecycle::take(const RunEnded& event, Turn& /*turn*/) {
  Live& one = live(event.id);
  PDJOB_CHECK(one.stage == Stage::kRunning || one.stage == Stage::kStopping, event.id);
  one.stage = Stage::kPrepared;
  one.all_ended = event.all_ended;
}

// A second time after a crash, they have their names already.
void BatchLifecycle::take(const ResultsNamed& event, Turn& turn) {
  Live& one = live(event.id);
  PDJOB_CHECK(one.stage == Stage::kNaming, event.id);
  if (one.batch.output_file_id.empty()) {
    one.batch.output_file_id = event.output_file_id;
    one.batch.error_file_id = event.error_file_id;
    one.batch.finalizing_at = turn.now;
    if (one.ending != Ending::kCancelled) {
      one.batch.state = BatchState::kFinalizing;
    }
  }
  one.change = store(one.batch, turn);
}

void BatchLifecycle::take(const RecordStored& event, Turn& turn) {
  const auto number = numbers_.find(event.id);
  if (number == numbers_.end()) {
    return;
  }
  Live& one = lives_.at(number->second);
  if (one.stage == Stage::kNaming && one.change == event.change && !draining_) {
    one.stage = Stage::kFinishing;
    turn.effects.emplace_back(
        FinishJob{event.id, one.ending == Ending::kExpired ? Rest::kExpired : Rest::kLeft});
  }
}

void BatchLifecycle::take(const ResultsMade& event, Turn& turn) {
  Live& one = live(event.id);
  PDJOB_CHECK(one.stage == Stage::kFinishing, event.id);
  BatchRecord& batch = one.batch;
  batch.state = one.ending == Ending::kCancelled ? BatchState::kCancelled
                : event.expired                  ? BatchState::kExpired
                                                 : BatchState::kCompleted;
  batch.ended_at = turn.now;
  batch.completed = event.answered;
  batch.failed = event.failed;
  batch.input_tokens = event.input_tokens;
  batch.output_tokens = event.output_tokens;
  std::vector<FileRecord> results;
  const auto keep = [&](std::string& file_id, int64_t bytes, const char* name) {
    if (bytes == 0) {
      file_id.clear();  // It was not made.
      return;
    }
    results.push_back({.id = file_id,
                       .tenant = batch.tenant,
                       .filename = batch.id + name,
                       .purpose = "batch_output",
                       .bytes = bytes,
                       .created_at = turn.now,
                       .expires_at = turn.now + batch.output_lifetime});
  };
  keep(batch.output_file_id, event.output_bytes, "_output.jsonl");
  keep(batch.error_file_id, event.error_bytes, "_error.jsonl");
  end(batch, std::move(results), turn);
}

void BatchLifecycle::take(const JobFailed& event, Turn& turn) {
  Live& one = live(event.id);
  one.stage = Stage::kWaiting;
  one.not_before = turn.now + config_.retry_seconds;
  turn.effects.emplace_back(DropJob{event.id, event.why});
}

void BatchLifecycle::take(const DrainAsked& /*event*/, Turn& turn) {
  draining_ = true;
  for (auto& [number, one] : lives_) {
    if (one.stage == Stage::kRunning) {
      one.stage = Stage::kStopping;
      turn.effects.emplace_back(StopJob{one.batch.id});
    }
  }
}

void BatchLifecycle::end(const BatchRecord& batch, std::vector<FileRecord> results, Turn& turn) {
  turn.effects.emplace_back(EndBatch{batch, std::move(results)});
  const int64_t number = batch.number;
  numbers_.erase(batch.id);
  lives_.erase(number);
}

// ---- What is next

// An end that the stored record has decided stays, whatever the clock says later.
BatchLifecycle::Ending BatchLifecycle::ending_of(const Live& live, int64_t now) {
  return live.batch.cancelling_at != 0                                  ? Ending::kCancelled
         : live.all_ended                                               ? Ending::kCompleted
         : now >= live.batch.expires_at || live.batch.finalizing_at > 0 ? Ending::kExpired
                                                                        : Ending::kNone;
}

size_t BatchLifecycle::count_of(Stage stage) const {
  return static_cast<size_t>(std::ranges::count_if(
      lives_, [stage](const auto& each) { return each.second.stage == stage; }));
}

void BatchLifecycle::move_on(Turn& turn) {
  if (draining_) {
    if (!drained_ && count_of(Stage::kRunning) + count_of(Stage::kStopping) == 0) {
      drained_ = true;
      turn.effects.emplace_back(Drained{});
    }
    return;
  }
  for (auto& [number, one] : lives_) {
    const Ending ending = ending_of(one, turn.now);
    if (one.stage == Stage::kRunning &&
        (ending == Ending::kCancelled || ending == Ending::kExpired || world_.disk_full)) {
      one.stage = Stage::kStopping;
      turn.effects.emplace_back(StopJob{one.batch.id});
    } else if (one.stage == Stage::kPrepared && ending != Ending::kNone) {
      one.stage = Stage::kNaming;
      one.ending = ending;
      turn.effects.emplace_back(NameResults{one.batch.id});
    }
  }
  prepare_some(turn);
  run_some(turn);
}

void BatchLifecycle::prepare_some(Turn& turn) {
  size_t preparing = count_of(Stage::kPreparing);
  size_t alive = lives_.size() - count_of(Stage::kWaiting);
  for (auto& [number, one] : lives_) {
    if (one.stage == Stage::kWaiting && preparing < config_.preparing_max &&
        turn.now >= one.not_before &&
        (alive < config_.alive_max || ending_of(one, turn.now) != Ending::kNone)) {
      ++preparing;
      ++alive;
      one.stage = Stage::kPreparing;
      turn.effects.emplace_back(PrepareJob{one.batch.id});
    }
  }
}

void BatchLifecycle::run_some(Turn& turn) {
  std::vector<Live*> ready;
  std::map<std::string, size_t> running;  // By tenant; those that stop, too.
  size_t running_now = 0;
  for (auto& [number, one] : lives_) {
    if (one.stage == Stage::kRunning || one.stage == Stage::kStopping) {
      ++running[one.batch.tenant];
      ++running_now;
    } else if (one.stage == Stage::kPrepared && !world_.disk_full) {
      ready.push_back(&one);
    }
  }
  for (; !ready.empty() && running_now < config_.running_max; ++running_now) {
    const auto next = std::ranges::min_element(
        ready, {}, [&](const Live* one) { return running[one->batch.tenant]; });
    (*next)->stage = Stage::kRunning;
    ++running[(*next)->batch.tenant];
    turn.effects.emplace_back(RunJob{(*next)->batch.id});
    ready.erase(next);
  }
}

}  // namespace pdjob::batch
