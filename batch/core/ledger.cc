#include "batch/core/ledger.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "common/check.h"

namespace pdjob::batch {
namespace {

constexpr size_t kDurationsMin = 20;
constexpr int kStragglerFactor = 3;  // Times the 90th percentile.

// Four classes for each doubling: rows that are about as long keep the order of their beginnings.
uint64_t size_class(uint32_t weight) {
  const auto bits = static_cast<uint32_t>(std::bit_width(weight));
  return bits <= 2 ? weight : uint64_t{bits} * 4 + ((weight >> (bits - 3)) & 3U);
}

}  // namespace

Ledger::Ledger(const LedgerConfig& config, uint64_t seed)
    : config_(config), random_(seed), window_(config.window) {}

void Ledger::step(const LedgerEvent& event, Instant now, std::vector<LedgerEffect>& effects) {
  if (finished_) {
    return;
  }
  if (progress_at_ == Instant{}) {
    progress_at_ = now;
  }
  Turn turn{now, effects};
  std::visit([&](const auto& one) { take(one, turn); }, event);
  move_on(turn);
}

void Ledger::move_on(Turn& turn) {
  wake_rows(turn);
  start_waiting(turn);
  ask_stragglers(turn);
  read_more(turn);
  end_if_done(turn);
}

// ---- Reading rows

void Ledger::read_more(Turn& turn) {
  if (!reading_ && !all_read_ && !stopping_ && waiting_.size() < config_.rows_ahead / 2 &&
      rows_.size() < config_.rows_ahead + config_.noting_max) {
    reading_ = true;
    turn.effects.emplace_back(ReadRows{config_.rows_ahead - waiting_.size()});
  }
}

Ledger::Order Ledger::order_of(RowId id, const Row& row) const {
  return {all_read_ ? std::numeric_limits<uint64_t>::max() - size_class(row.weight) : row.round,
          row.beginning, id};
}

void Ledger::wait(RowId id, Row& row) {
  row.state = State::kWaiting;
  waiting_.insert(order_of(id, row));
}

void Ledger::take(const RowsRead& event, Turn& /*turn*/) {
  PDJOB_CHECK(reading_);
  reading_ = false;
  ++reads_;
  for (const RowsRead::Row& read : event.rows) {
    const auto [place, fresh] = rows_.emplace(read.id, Row{.weight = read.weight,
                                                           .beginning = read.beginning,
                                                           .round = reads_,
                                                           .blame = read.blame});
    PDJOB_CHECK(fresh, read.id.value);
    wait(read.id, place->second);
  }
  if (event.last && !all_read_) {
    all_read_ = true;
    for (const Order& before : std::exchange(waiting_, {})) {
      const RowId id = std::get<RowId>(before);
      waiting_.insert(order_of(id, rows_.at(id)));
    }
  }
}

// ---- Starting attempts

bool Ledger::may_start(Turn& turn) const {
  return !stopping_ && turn.now >= closed_until_ && attempts_.size() < window_.size() &&
         noting_ < config_.noting_max;
}

void Ledger::wake_rows(Turn& turn) {
  while (!backoff_.empty() && backoff_.begin()->first <= turn.now) {
    const RowId id = backoff_.begin()->second;
    backoff_.erase(backoff_.begin());
    wait(id, rows_.at(id));
  }
}

void Ledger::start_waiting(Turn& turn) {
  while (!waiting_.empty() && may_start(turn)) {
    const RowId id = std::get<RowId>(*waiting_.begin());
    waiting_.erase(waiting_.begin());
    start(id, rows_.at(id), turn);
    // After a pause, one attempt tries the pool first.
    if (closed_for_ > Duration::zero()) {
      probe_ = AttemptId{attempts_made_};
      closed_until_ = turn.now + closed_for_;
    }
  }
}

void Ledger::start(RowId id, Row& row, Turn& turn) {
  row.state = State::kAsked;
  row.running += 1;
  row.attempts += 1;
  const AttemptId attempt{++attempts_made_};
  attempts_.emplace(attempt, Attempt{id, turn.now});
  turn.effects.emplace_back(StartAttempt{attempt, id, row.attempts});
}

// Attempts are in order of their start.
void Ledger::ask_stragglers(Turn& turn) {
  if (!all_read_ || !waiting_.empty() || closed_for_ > Duration::zero()) {
    return;
  }
  const Duration patience = straggles_after();
  std::vector<RowId> late;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.began + patience > turn.now) {
      break;
    }
    if (!rows_.at(attempt.row).asked_twice) {
      late.push_back(attempt.row);
    }
  }
  for (const RowId id : late) {
    if (!may_start(turn)) {
      return;
    }
    Row& row = rows_.at(id);
    if (row.running == 1 && !row.asked_twice) {
      row.asked_twice = true;
      start(id, row, turn);
    }
  }
}

void Ledger::remember_duration(Duration duration) {
  durations_[durations_seen_++ % durations_.size()] = duration;
}

Duration Ledger::straggles_after() const {
  const size_t known = std::min(durations_seen_, durations_.size());
  if (known < kDurationsMin) {
    return std::max(config_.straggler_min, Duration(config_.patience / 4));
  }
  std::array<Duration, 128> sorted = durations_;
  const auto rank = sorted.begin() + static_cast<std::ptrdiff_t>(known * 9 / 10);
  std::nth_element(sorted.begin(), rank, sorted.begin() + static_cast<std::ptrdiff_t>(known));
  return std::max(config_.straggler_min, kStragglerFactor * *rank);
}

// ---- Ends of attempts

void Ledger::take(const AttemptEnded& event, Turn& turn) {
  const auto found = attempts_.find(event.attempt);
  if (found == attempts_.end()) {
    turn.effects.emplace_back(DropReply{event.attempt});  // It was cancelled meanwhile.
    return;
  }
  const bool full = attempts_.size() >= window_.size();
  const Attempt attempt = found->second;
  attempts_.erase(found);
  Row& row = rows_.at(attempt.row);
  row.running -= 1;
  const bool final = event.outcome == Outcome::kAnswered || event.outcome == Outcome::kRefused;
  if (final || event.outcome == Outcome::kBroken) {
    progress_at_ = turn.now;
    closed_for_ = Duration::zero();
    closed_until_ = {};
  }
  if (final) {
    window_.answered(full, turn.now);
    if (event.outcome == Outcome::kAnswered) {
      remember_duration(turn.now - attempt.began);
    }
    note(attempt.row, row, event.attempt, event.outcome == Outcome::kAnswered, turn);
    return;
  }
  const bool fails = count_failure(row, event, turn);
  if (!fails && (event.outcome == Outcome::kBroken || event.outcome == Outcome::kLost)) {
    turn.effects.emplace_back(NoteBlame{attempt.row, row.blame});
  }
  if (row.running > 0) {
    turn.effects.emplace_back(DropReply{event.attempt});  // Its other attempt may still answer.
  } else if (fails) {
    note(attempt.row, row, event.attempt, /*answered=*/false, turn);
  } else {
    turn.effects.emplace_back(DropReply{event.attempt});
    retry(attempt.row, row, event, turn);
  }
}

bool Ledger::count_failure(Row& row, const AttemptEnded& event, Turn& turn) {
  switch (event.outcome) {
    case Outcome::kBroken:
      return ++row.blame.broken >= config_.attempts_max;
    case Outcome::kLost:
      return ++row.blame.lost >= config_.losses_max;
    case Outcome::kBusy:
      window_.overloaded(turn.now);
      if (attempts_.empty()) {  // Nobody else got in.
        close_pool(event.attempt, "the server refuses every row for overload", turn);
      }
      return ++row.blame.lost >= config_.losses_max;
    case Outcome::kUnreachable:
      close_pool(event.attempt, "the server cannot be reached", turn);
      return false;
    case Outcome::kAnswered:
    case Outcome::kRefused:
      break;
  }
  PDJOB_CHECK(false, static_cast<int>(event.outcome));
}

// All wait, and then one tries. `failed`: if it was that one, all wait twice as long.
void Ledger::close_pool(AttemptId failed, const char* why, Turn& turn) {
  if (failed == probe_ || turn.now >= closed_until_) {
    closed_for_ = std::clamp(2 * closed_for_, config_.backoff_min, config_.backoff_max);
    closed_until_ = turn.now + closed_for_;
  }
  if (turn.now - progress_at_ >= config_.patience && !stopping_) {
    stopping_ = true;
    stop_reason_ = why;
  }
}

void Ledger::retry(RowId id, Row& row, const AttemptEnded& event, Turn& turn) {
  if (event.outcome == Outcome::kUnreachable) {
    wait(id, row);  // The pause of the whole pool is enough.
    return;
  }
  const uint32_t failures = std::min<uint32_t>(row.blame.broken + row.blame.lost, 16);
  const Duration longest =
      std::min(config_.backoff_max, config_.backoff_min * (int64_t{1} << (failures - 1)));
  // Between half of it and all of it, so that rows that broke together do not come together.
  const auto jitter = static_cast<int64_t>(random_.below(longest.count() / 2 + 1));
  row.state = State::kBackoff;
  row.due = turn.now + std::max(longest / 2 + Duration(jitter), event.retry_after);
  backoff_.emplace(row.due, id);
}

void Ledger::note(RowId id, Row& row, AttemptId attempt, bool answered, Turn& turn) {
  cancel_others(id, turn);
  row.state = State::kNoting;
  ++noting_;
  turn.effects.emplace_back(NoteRow{id, attempt, answered, row.attempts});
}

void Ledger::cancel_others(RowId id, Turn& turn) {
  Row& row = rows_.at(id);
  for (auto at = attempts_.begin(); row.running > 0 && at != attempts_.end();) {
    if (at->second.row == id) {
      turn.effects.emplace_back(CancelAttempt{at->first});
      row.running -= 1;
      at = attempts_.erase(at);
    } else {
      ++at;
    }
  }
}

void Ledger::take(const RowsNoted& event, Turn& /*turn*/) {
  for (const RowId id : event.rows) {
    const auto found = rows_.find(id);
    PDJOB_CHECK(found != rows_.end() && found->second.state == State::kNoting, id.value);
    rows_.erase(found);
    --noting_;
  }
}

void Ledger::take(const WorkersCounted& event, Turn& /*turn*/) {
  window_.count_workers(event.workers);
}

// ---- The end

void Ledger::take(const StopAsked& event, Turn& turn) {
  stopping_ = true;
  stop_reason_ = event.reason;
  for (const auto& [id, attempt] : attempts_) {
    turn.effects.emplace_back(CancelAttempt{id});
    Row& row = rows_.at(attempt.row);
    row.running -= 1;
    if (row.running == 0) {
      wait(attempt.row, row);
    }
  }
  attempts_.clear();
}

void Ledger::end_if_done(Turn& turn) {
  const bool complete = all_read_ && rows_.empty();
  if (complete || (stopping_ && attempts_.empty() && noting_ == 0)) {
    finished_ = true;
    turn.effects.emplace_back(Finished{complete, complete ? std::string() : stop_reason_});
  }
}

Instant Ledger::next_wakeup() const {
  if (finished_ || stopping_) {
    return kNever;
  }
  Instant next = backoff_.empty() ? kNever : backoff_.begin()->first;
  if (attempts_.size() >= window_.size() || noting_ >= config_.noting_max) {
    return next;  // An event will come.
  }
  if (!waiting_.empty() && closed_for_ > Duration::zero()) {
    next = std::min(next, closed_until_);
  }
  if (all_read_ && waiting_.empty() && closed_for_ == Duration::zero()) {
    for (const auto& [id, attempt] : attempts_) {
      if (!rows_.at(attempt.row).asked_twice) {
        next = std::min(next, attempt.began + straggles_after());
        break;
      }
    }
  }
  return next;
}

}  // namespace pdjob::batch
