#include "batch/stages/stage_pool.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::batch {

StagePool::StagePool(const StagePoolConfig& config) : config_(config), workers_(config.workers) {
  PDJOB_CHECK(config.workers > 0 && config.pipeline > 0);
}

void StagePool::step(const StageEvent& event, Instant now, std::vector<StageEffect>& effects) {
  Turn turn{now, effects};
  if (!given_up_) {
    std::visit([&](const auto& one) { take(one, turn); }, event);
  }
  if (!given_up_) {
    end_late(turn);
  }
  if (!given_up_) {
    judge_convicted(turn);
    send_waiting(turn);
  }
}

Instant StagePool::next_wakeup() const {
  Instant due = kNever;
  if (given_up_) {
    return due;
  }
  for (const Worker& worker : workers_) {
    if (worker.run != StageRun{}) {
      due = std::min(due, deadline_of(worker));
    } else if (!waiting_.empty()) {
      due = std::min(due, worker.not_before);
    }
  }
  return due;
}

std::optional<StageRow> StagePool::first_of(StageRun run) const {
  for (const Worker& worker : workers_) {
    if (worker.run == run && !worker.rows.empty() && rows_.contains(worker.rows.front())) {
      return worker.rows.front();
    }
  }
  return std::nullopt;
}

size_t StagePool::under_way() const {
  size_t count = 0;
  for (const Worker& worker : workers_) {
    count += worker.rows.size();
  }
  return count;
}

// ---- Events

void StagePool::take(const StageRowCame& event, Turn& /*turn*/) {
  PDJOB_CHECK(rows_.emplace(event.row, Row{}).second, event.row.value);
  waiting_.insert(event.row);
}

// A row that is under way keeps its place: its line still comes.
void StagePool::take(const StageRowLeft& event, Turn& /*turn*/) {
  rows_.erase(event.row);
  waiting_.erase(event.row);
  convicted_.erase(event.row);
}

void StagePool::take(const StageAnswered& event, Turn& turn) {
  Worker* const worker = find(event.run);
  if (worker == nullptr) {
    return;
  }
  if (worker->rows.empty()) {
    turn.emit(EndStageProcess{worker->run});
    died(*worker, "it wrote a line that answers no row", turn);
    return;
  }
  const StageRow row = worker->rows.front();
  worker->rows.pop_front();
  worker->first_since = turn.now;
  worker->alone = false;
  worker->answered = ever_answered_ = true;
  worker->deaths = 0;
  for (Worker& each : workers_) {
    each.fruitless = 0;
  }
  if (rows_.erase(row) > 0) {
    turn.emit(PassStageAnswer{row});
  }
  fail_convicted(turn);
}

void StagePool::take(const StageDied& event, Turn& turn) {
  if (Worker* const worker = find(event.run)) {
    died(*worker, event.how, turn);
  }
}

// ---- Deaths

void StagePool::end_late(Turn& turn) {
  for (Worker& worker : workers_) {
    if (!given_up_ && worker.run != StageRun{} && deadline_of(worker) <= turn.now) {
      const auto allowed = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline_of(worker) - worker.first_since);
      turn.emit(EndStageProcess{worker.run});
      died(worker, "no answer within " + std::to_string(allowed.count()) + " ms", turn);
    }
  }
}

void StagePool::died(Worker& worker, const std::string& how, Turn& turn) {
  const std::deque<StageRow> rows = std::move(worker.rows);
  worker.rows.clear();
  worker.run = {};
  worker.alone = worker.answered = false;
  worker.deaths += 1;
  worker.fruitless += 1;
  worker.not_before = turn.now + backoff_after(worker.deaths);
  deaths_ += 1;
  const auto number = static_cast<uint32_t>(&worker - workers_.data());
  turn.emit(TellStageDeath{number, how});
  for (const StageRow row : rows) {
    if (rows_.contains(row)) {
      row == rows.front() ? blame(row, how) : void(waiting_.insert(row));
    }
  }
  const uint32_t allowed =
      ever_answered_ ? config_.deaths_in_a_row : config_.deaths_before_first_answer;
  if (worker.fruitless >= allowed) {
    given_up_ = true;
    rows_.clear();
    waiting_.clear();
    convicted_.clear();
    for (Worker& each : workers_) {
      if (each.run != StageRun{}) {
        turn.emit(EndStageProcess{each.run});
      }
      each = {};
    }
    turn.emit(GiveUpStage{"its process ended " + std::to_string(allowed) +
                          " times in a row without an answer; the last time: " + how});
  }
}

void StagePool::blame(StageRow row, const std::string& how) {
  Row& blamed = rows_.at(row);
  blamed.deaths += 1;
  blamed.how = how;
  (blamed.deaths >= config_.deaths_max ? convicted_ : waiting_).insert(row);
}

void StagePool::fail_convicted(Turn& turn) {
  for (const StageRow row : convicted_) {
    const auto found = rows_.extract(row);
    turn.emit(FailStageRow{row, "its process ended " + std::to_string(found.mapped().deaths) +
                                    " times at this row; the last time: " + found.mapped().how});
  }
  convicted_.clear();
}

// Without other rows nothing proves more than what is known.
void StagePool::judge_convicted(Turn& turn) {
  if (convicted_.empty() || !waiting_.empty() || under_way() > 0) {
    return;
  }
  if (ever_answered_) {
    fail_convicted(turn);
  } else {
    waiting_.insert(convicted_.extract(convicted_.begin()).value());
  }
}

// ---- Sending

// A suspect at the head holds the others back until a process is free for it alone.
void StagePool::send_waiting(Turn& turn) {
  while (!waiting_.empty()) {
    const StageRow row = *waiting_.begin();
    const bool alone = rows_.at(row).deaths > 0;
    Worker* const worker = choose(alone, turn);
    if (worker == nullptr) {
      return;
    }
    if (worker->rows.empty()) {
      worker->first_since = turn.now;
    }
    waiting_.erase(waiting_.begin());
    worker->rows.push_back(row);
    worker->alone = alone;
    turn.emit(SendStageRow{worker->run, row});
  }
}

StagePool::Worker* StagePool::choose(bool alone, Turn& turn) {
  Worker* least = nullptr;
  Worker* startable = nullptr;
  for (Worker& worker : workers_) {
    if (worker.run == StageRun{}) {
      startable = startable == nullptr && worker.not_before <= turn.now ? &worker : startable;
    } else if (!worker.alone && worker.rows.size() < config_.pipeline &&
               (least == nullptr || worker.rows.size() < least->rows.size())) {
      least = &worker;
    }
  }
  if (least != nullptr && least->rows.empty()) {
    return least;
  }
  if (startable != nullptr) {
    startable->run = StageRun{++runs_};
    const auto number = static_cast<uint32_t>(startable - workers_.data());
    turn.emit(StartStageProcess{startable->run, number});
    return startable;
  }
  return alone ? nullptr : least;
}

StagePool::Worker* StagePool::find(StageRun run) {
  const auto found = std::ranges::find(workers_, run, &Worker::run);
  return run == StageRun{} || found == workers_.end() ? nullptr : &*found;
}

Instant StagePool::deadline_of(const Worker& worker) const {
  if (worker.rows.empty()) {
    return kNever;
  }
  return worker.first_since + config_.timeout +
         (worker.answered ? Duration::zero() : config_.start_timeout);
}

Duration StagePool::backoff_after(uint32_t deaths) const {
  Duration wait = config_.backoff_min;
  for (uint32_t i = 1; i < deaths && wait < config_.backoff_max; ++i) {
    wait *= 2;
  }
  return std::min(wait, config_.backoff_max);
}

}  // namespace pdjob::batch
