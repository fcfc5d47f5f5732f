#include "batch/api/batch_lifecycle.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::batch {
namespace {

// The time of something that happens to the batch now: not before what happened to it until now,
// whatever the wall clock says.
int64_t stamp(const BatchRecord& batch, int64_t now) {
  return std::max(
      {now, batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.cancelling_at});
}

}  // namespace

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
  Turn turn{{now, effects}, world_.unix_seconds + since.count()};
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

// If the wall clock went back since the batch was made, it still has no more than its window.
void BatchLifecycle::take(const BatchAdded& event, Turn& turn) {
  const BatchRecord& batch = event.batch;
  PDJOB_CHECK(!batch.ended(), batch.id);
  const int64_t window = std::max<int64_t>(batch.expires_at - batch.created_at, 0);
  const int64_t left = std::clamp<int64_t>(batch.expires_at - turn.seconds, 0, window);
  const auto [place, fresh] = lives_.emplace(
      batch.number, Live{.batch = batch, .window_ends = turn.now + std::chrono::seconds(left)});
  PDJOB_CHECK(fresh && numbers_.emplace(event.batch.id, event.batch.number).second, event.batch.id);
}

void BatchLifecycle::take(const CancelAsked& event, Turn& turn) {
  Live& one = live(event.id);
  BatchRecord& batch = one.batch;
  PDJOB_CHECK(can_cancel(batch), event.id);
  one.not_before = {};
  batch.state = BatchState::kCancelling;
  batch.cancelling_at = stamp(batch, turn.seconds);
  store(batch, turn);
}

void BatchLifecycle::take(const JobPrepared& event, Turn& turn) {
  Live& one = live(event.id);
  PDJOB_CHECK(one.stage == Stage::kPreparing, event.id);
  if (!event.errors.empty()) {
    one.batch.state = BatchState::kFailed;
    one.batch.errors = event.errors;
    one.batch.ended_at = stamp(one.batch, turn.seconds);
    return end(one.batch, {}, turn);
  }
  one.stage = Stage::kPrepared;
  one.had_turn = false;
  one.all_ended = event.all_ended;
  if (one.batch.in_progress_at == 0) {
    one.failures = 0;
    one.trouble.clear();
    one.batch.in_progress_at = stamp(one.batch, turn.seconds);
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
  PDJOB_CHECK(one.stage == Stage::kRunning || one.stage == Stage::kYielding ||
                  one.stage == Stage::kStopping,
              event.id);
  one.stage = Stage::kPrepared;
  one.had_turn = true;
  one.all_ended = event.all_ended;
  if (event.progressed) {
    one.failures = 0;
    one.trouble.clear();
  }
}

// A second time after a crash, they have their names already.
void BatchLifecycle::take(const ResultsNamed& event, Turn& turn) {
  Live& one = live(event.id);
  PDJOB_CHECK(one.stage == Stage::kNaming, event.id);
  if (one.batch.output_file_id.empty()) {
    one.batch.output_file_id = event.output_file_id;
    one.batch.error_file_id = event.error_file_id;
    one.batch.finalizing_at = stamp(one.batch, turn.seconds);
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
  batch.ended_at = stamp(batch, turn.seconds);
  if (batch.state == BatchState::kExpired) {
    batch.ended_at = std::max(batch.ended_at, batch.expires_at);
    batch.errors = one.trouble;
  }
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
                       .created_at = batch.ended_at,
                       .expires_at = batch.ended_at + batch.output_lifetime});
  };
  keep(batch.output_file_id, event.output_bytes, "_output.jsonl");
  keep(batch.error_file_id, event.error_bytes, "_error.jsonl");
  end(batch, std::move(results), turn);
}

void BatchLifecycle::take(const JobFailed& event, Turn& turn) {
  Live& one = live(event.id);
  one.failures = (event.progressed ? 0 : one.failures) + 1;
  one.trouble = event.errors;
  one.stage = Stage::kWaiting;
  // Beyond 2^16 every pause is the longest one.
  const Duration pause = config_.retry_min * (int64_t{1} << std::min(one.failures - 1, 16U));
  one.not_before = turn.now + std::min(pause, config_.retry_max);
  turn.effects.emplace_back(DropJob{event.id, event.why});
  const bool may_have_answers = one.batch.in_progress_at != 0;
  const bool over = one.batch.cancelling_at != 0 || turn.now >= one.window_ends;
  if (one.failures >= config_.tries_max && (over || !may_have_answers)) {
    give_up(one, turn);
  }
}

void BatchLifecycle::give_up(Live& one, Turn& turn) {
  BatchRecord& batch = one.batch;
  std::vector<std::string> unnamed;
  for (std::string* const file : {&batch.output_file_id, &batch.error_file_id}) {
    if (!file->empty()) {
      unnamed.push_back(std::exchange(*file, ""));
    }
  }
  batch.state = batch.cancelling_at != 0 ? BatchState::kCancelled : BatchState::kFailed;
  batch.errors = one.trouble;
  batch.ended_at = stamp(batch, turn.seconds);
  turn.effects.emplace_back(EndBatch{batch, {}, std::move(unnamed)});
  forget(batch.number);
}

void BatchLifecycle::take(const DrainAsked& /*event*/, Turn& turn) {
  draining_ = true;
  for (auto& [number, one] : lives_) {
    if (one.stage == Stage::kRunning || one.stage == Stage::kYielding) {
      one.stage = Stage::kStopping;
      turn.effects.emplace_back(StopJob{one.batch.id});
    }
  }
}

void BatchLifecycle::end(const BatchRecord& batch, std::vector<FileRecord> results, Turn& turn) {
  turn.effects.emplace_back(EndBatch{batch, std::move(results), {}});
  forget(batch.number);
}

void BatchLifecycle::forget(int64_t number) {
  const auto one = lives_.find(number);
  const std::string tenant = one->second.batch.tenant;
  numbers_.erase(one->second.batch.id);
  lives_.erase(one);
  const auto is_own = [&](const auto& each) { return each.second.batch.tenant == tenant; };
  if (std::ranges::none_of(lives_, is_own)) {
    served_.erase(tenant);
  }
}

std::string BatchLifecycle::trouble(const std::string& id) const {
  const auto number = numbers_.find(id);
  return number == numbers_.end() ? std::string() : lives_.at(number->second).trouble;
}

// ---- What is next

// An end that the stored record has decided stays, whatever the clock says later.
BatchLifecycle::Ending BatchLifecycle::ending_of(const Live& live, Instant now) {
  return live.batch.cancelling_at != 0                             ? Ending::kCancelled
         : live.all_ended                                          ? Ending::kCompleted
         : now >= live.window_ends || live.batch.finalizing_at > 0 ? Ending::kExpired
                                                                   : Ending::kNone;
}

bool BatchLifecycle::may_run(const Live& live) const {
  return !world_.disk_full && !world_.full_tenants.contains(live.batch.tenant);
}

uint64_t BatchLifecycle::served(const std::string& tenant) const {
  const auto found = served_.find(tenant);
  return found == served_.end() ? 0 : found->second;
}

size_t BatchLifecycle::count_of(Stage stage) const {
  return static_cast<size_t>(std::ranges::count_if(
      lives_, [stage](const auto& each) { return each.second.stage == stage; }));
}

BatchLifecycle::Counts BatchLifecycle::counts_of(const auto& counted) const {
  Counts counts;
  for (const auto& [number, one] : lives_) {
    if (counted(one)) {
      ++counts[one.batch.tenant];
    }
  }
  return counts;
}

// Of the tenant that has least; of those, of the one that was served least recently; its oldest.
BatchLifecycle::Live* BatchLifecycle::next_of(Counts& counts, const auto& wanted) {
  Live* next = nullptr;
  const auto rank = [&](const Live& one) {
    return std::pair(counts[one.batch.tenant], served(one.batch.tenant));
  };
  for (auto& [number, one] : lives_) {
    if (wanted(one) && (next == nullptr || rank(one) < rank(*next))) {
      next = &one;
    }
  }
  return next;
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
    const bool must_stop = ending == Ending::kCancelled || ending == Ending::kExpired;
    if (must_stop && (one.stage == Stage::kRunning || one.stage == Stage::kYielding)) {
      one.stage = Stage::kStopping;
      turn.effects.emplace_back(StopJob{one.batch.id});
    } else if (one.stage == Stage::kRunning && !may_run(one)) {
      yield(one, turn);  // A quota leaves room for the rows in flight.
    } else if (one.stage == Stage::kPrepared && ending != Ending::kNone) {
      one.stage = Stage::kNaming;
      one.ending = ending;
      turn.effects.emplace_back(NameResults{one.batch.id});
    }
  }
  run_some(turn);
  make_room_to_run(turn);
  make_room_to_prepare(turn);
  prepare_some(turn);
}

void BatchLifecycle::prepare(Live& one, Turn& turn) {
  one.stage = Stage::kPreparing;
  turn.effects.emplace_back(PrepareJob{one.batch.id});
}

void BatchLifecycle::prepare_some(Turn& turn) {
  Counts alive = counts_of([](const Live& one) { return one.stage != Stage::kWaiting; });
  size_t all = lives_.size() - count_of(Stage::kWaiting);
  for (size_t preparing = count_of(Stage::kPreparing); preparing < config_.preparing_max;
       ++preparing) {
    const auto due = [&](const Live& one) {
      return one.stage == Stage::kWaiting && turn.now >= one.not_before;
    };
    Live* next = next_of(alive, [&](const Live& one) {
      return due(one) && ending_of(one, turn.now) != Ending::kNone;
    });
    if (next == nullptr && all < config_.alive_max) {
      next = next_of(alive, [&](const Live& one) { return due(one) && may_run(one); });
    }
    if (next == nullptr) {
      return;
    }
    ++alive[next->batch.tenant];
    ++all;
    prepare(*next, turn);
  }
}

// A prepared batch gives its place to a tenant that has two fewer. If every tenant has one, those
// that had their turn give way.
void BatchLifecycle::make_room_to_prepare(Turn& turn) {
  if (lives_.size() - count_of(Stage::kWaiting) < config_.alive_max) {
    return;
  }
  Counts alive = counts_of([](const Live& one) { return one.stage != Stage::kWaiting; });
  const Live* const next = next_of(alive, [&](const Live& one) {
    return one.stage == Stage::kWaiting && turn.now >= one.not_before && may_run(one);
  });
  if (next == nullptr) {
    return;
  }
  Live* leaves = nullptr;
  const auto rank = [&](const Live& one) {
    return std::pair(alive[one.batch.tenant], one.batch.number);
  };
  const size_t has = alive[next->batch.tenant];
  for (auto& [number, one] : lives_) {
    const size_t theirs = one.stage == Stage::kPrepared ? alive[one.batch.tenant] : 0;
    if ((theirs >= has + 2 || (theirs == has + 1 && has == 0 && one.had_turn)) &&
        (leaves == nullptr || rank(*leaves) < rank(one))) {
      leaves = &one;
    }
  }
  if (leaves != nullptr) {
    leaves->stage = Stage::kWaiting;
    turn.effects.emplace_back(UnloadJob{leaves->batch.id});
  }
}

void BatchLifecycle::run_some(Turn& turn) {
  Counts running = counts_of([](const Live& one) { return one.stage == Stage::kRunning; });
  for (size_t all =
           count_of(Stage::kRunning) + count_of(Stage::kYielding) + count_of(Stage::kStopping);
       all < config_.running_max; ++all) {
    Live* const next = next_of(
        running, [&](const Live& one) { return one.stage == Stage::kPrepared && may_run(one); });
    if (next == nullptr) {
      return;
    }
    next->stage = Stage::kRunning;
    next->ran_at = turn.now;
    ++running[next->batch.tenant];
    served_[next->batch.tenant] = ++turns_;
    turn.effects.emplace_back(RunJob{next->batch.id});
  }
}

// At most as many make room as there are tenants that wait for it.
void BatchLifecycle::make_room_to_run(Turn& turn) {
  Counts running = counts_of([](const Live& one) { return one.stage == Stage::kRunning; });
  size_t leaving = count_of(Stage::kYielding) + count_of(Stage::kStopping);
  if (count_of(Stage::kRunning) + leaving < config_.running_max) {
    return;
  }
  Counts waiting =
      counts_of([&](const Live& one) { return one.stage == Stage::kPrepared && may_run(one); });
  std::erase_if(waiting, [&](const auto& tenant) {
    const size_t has = running[tenant.first];
    return has > 0 &&
           std::ranges::all_of(running, [&](const auto& other) { return other.second < has + 2; });
  });
  for (; leaving < waiting.size(); ++leaving) {
    const size_t fewest = running[std::ranges::min_element(waiting, {}, [&](const auto& tenant) {
                                    return running[tenant.first];
                                  })->first];
    Live* leaves = nullptr;
    const auto rank = [&](const Live& one) {  // The most of its tenant's; of those, the longest.
      return std::pair(running[one.batch.tenant], turn.now - one.ran_at);
    };
    for (auto& [number, one] : lives_) {
      const size_t theirs = one.stage == Stage::kRunning ? running[one.batch.tenant] : 0;
      const bool had_turn = turn.now - one.ran_at >= config_.turn;
      if ((theirs >= fewest + 2 || (theirs == 1 && fewest == 0 && had_turn)) &&
          (leaves == nullptr || rank(*leaves) < rank(one))) {
        leaves = &one;
      }
    }
    if (leaves == nullptr) {
      return;
    }
    --running[leaves->batch.tenant];
    yield(*leaves, turn);
  }
}

void BatchLifecycle::yield(Live& one, Turn& turn) {
  one.stage = Stage::kYielding;
  turn.effects.emplace_back(YieldJob{one.batch.id});
}

}  // namespace pdjob::batch
