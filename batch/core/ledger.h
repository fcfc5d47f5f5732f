// Ledger: decides what happens to each row of a batch. A row is pending, in flight, being noted, or
// ended. It is asked again after a failure that is not its own; at most one answer of it is noted,
// whatever arrives later.
//
//            ReadRows           StartAttempt        NoteRow           RowsNoted
//   on disk ---------> waiting ------------> asked --------> noting ----------> ended
//                         ^                    |  |             ^
//                         +---- backoff -------+  +- cancelled -+ (the slower of two attempts)
//
// It holds only the rows that are next, so its memory is bounded whatever the batch has. It knows
// no bytes: its shell reads rows, sends them, and keeps replies until they are noted. It forgets
// everything in a crash: what the file of the ledger does not have as ended, runs again.
//
// A row that breaks workers is the router's to judge (422); that answer is final here. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "batch/core/window.h"
#include "common/core.h"
#include "common/id.h"
#include "common/random.h"
#include "common/time.h"

namespace pdjob::batch {

using RowId = StrongId<struct RowTag, uint64_t>;
using AttemptId = StrongId<struct AttemptTag, uint64_t>;

struct LedgerConfig {
  WindowConfig window;
  uint32_t attempts_max = 5;  // That failed by a server's fault; then the row fails.
  // Attempts whose connection broke or that were refused for overload. They say little about the
  // row, so the limit is high.
  uint32_t losses_max = 100;
  Duration backoff_min = std::chrono::milliseconds(500);
  Duration backoff_max = std::chrono::seconds(30);
  // The pool is given up after so long without an answer, if it refuses or cannot be reached.
  Duration patience = std::chrono::minutes(10);
  Duration straggler_min = std::chrono::seconds(5);
  size_t rows_ahead = 8192;  // Waiting rows in memory.
  size_t noting_max = 4096;  // Rows that wait for the disk; beyond: nothing is started.
};

enum class Outcome {
  kAnswered,     // 2xx.
  kRefused,      // The row is wrong: final.
  kBroken,       // 5xx, a timeout: the row counts as tried.
  kLost,         // The connection broke.
  kBusy,         // 429, 503: the pool is full.
  kUnreachable,  // Nothing was sent.
};

// How often a server failed at a row.
struct Blame {
  uint32_t broken = 0;  // Counts towards attempts_max.
  uint32_t lost = 0;    // Counts towards losses_max.
  friend bool operator==(const Blame&, const Blame&) = default;
};

// Events.
struct RowsRead {
  struct Row {
    RowId id;
    uint32_t weight = 0;     // Its predicted length.
    Blame blame;             // Of processes before this one.
    uint64_t beginning = 0;  // Rows whose prompts begin alike have near ones.
  };
  std::vector<Row> rows;
  bool last = false;  // No other row is pending on disk.
};
struct AttemptEnded {
  AttemptId attempt;
  Outcome outcome = Outcome::kBroken;
  Duration retry_after{};  // As the server asks; 0: it does not.
};
struct RowsNoted {
  std::vector<RowId> rows;  // They are on disk, and noted.
};
struct WorkersCounted {
  size_t workers = 0;
};
struct StopAsked {
  std::string reason;  // Empty: a person asks.
};
struct WindowSet {
  size_t size = 0;  // Rows in flight.
};
// Starts no more, but lets what is in flight end.
struct YieldAsked {};
using LedgerEvent = std::variant<RowsRead, AttemptEnded, RowsNoted, WorkersCounted, WindowSet,
                                 StopAsked, YieldAsked, TimePassed>;

// Effects.
struct ReadRows {
  size_t count = 0;  // In order of their ids, after those read before.
};
struct StartAttempt {
  AttemptId attempt;
  RowId row;
  uint32_t number = 0;  // Of this row, from 1.
};
struct CancelAttempt {
  AttemptId attempt;
};
// Write the reply of the attempt, then note the row; RowsNoted follows.
struct NoteRow {
  RowId row;
  AttemptId attempt;
  bool answered = false;  // False: it failed.
  uint32_t attempts = 0;
};
// Write the row's blame into the ledger's file, soon. Then a row that breaks its server fails at
// last, even if it breaks this process, too. A later note of the same row replaces it.
struct NoteBlame {
  RowId row;
  Blame blame;
};
// The reply of the attempt is not needed.
struct DropReply {
  AttemptId attempt;
};
struct Finished {
  bool complete = false;  // Every row has ended.
  std::string reason;     // Why not; empty: a person asked.
};
using LedgerEffect =
    std::variant<ReadRows, StartAttempt, CancelAttempt, NoteRow, NoteBlame, DropReply, Finished>;

class Ledger {
 public:
  Ledger(const LedgerConfig& config, uint64_t seed);

  void step(const LedgerEvent& event, Instant now, std::vector<LedgerEffect>& effects);
  Instant next_wakeup() const;

  size_t in_flight() const { return attempts_.size(); }
  size_t window() const { return window_.size(); }
  bool finished() const { return finished_; }

 private:
  enum class State { kWaiting, kBackoff, kAsked, kNoting };
  struct Row {
    State state = State::kWaiting;
    uint32_t weight = 0;
    uint64_t beginning = 0;
    uint64_t round = 0;     // The read that it came with.
    uint32_t attempts = 0;  // Started.
    Blame blame;
    uint32_t running = 0;      // Attempts in flight: 0, 1 or 2.
    bool asked_twice = false;  // As a straggler.
    Instant due{};             // kBackoff: when it waits again.
  };
  struct Attempt {
    RowId row;
    Instant began{};
  };
  using Turn = pdjob::Turn<LedgerEffect>;

  void take(const RowsRead& event, Turn& turn);
  void take(const AttemptEnded& event, Turn& turn);
  void take(const RowsNoted& event, Turn& turn);
  void take(const WorkersCounted& event, Turn& turn);
  void take(const StopAsked& event, Turn& turn);
  void take(const WindowSet& event, Turn& turn) { window_.set(event.size, turn.now); }
  void take(const YieldAsked& /*event*/, Turn& /*turn*/) { stopping_ = true; }
  void take(const TimePassed& /*event*/, Turn& /*turn*/) {}

  void wait(RowId id, Row& row);
  // Whether the row fails for good.
  bool count_failure(Row& row, const AttemptEnded& event, Turn& turn);
  // Nothing starts for a while. Gives up after config_.patience.
  void close_pool(AttemptId failed, const char* why, Turn& turn);
  void retry(RowId id, Row& row, const AttemptEnded& event, Turn& turn);
  void note(RowId id, Row& row, AttemptId attempt, bool answered, Turn& turn);
  void cancel_others(RowId id, Turn& turn);
  void move_on(Turn& turn);
  void wake_rows(Turn& turn);
  void start_waiting(Turn& turn);
  void start(RowId id, Row& row, Turn& turn);
  void ask_stragglers(Turn& turn);
  void read_more(Turn& turn);
  void end_if_done(Turn& turn);
  void remember_duration(Duration duration);
  Duration straggles_after() const;
  bool may_start(Turn& turn) const;
  // Rows that are read together go in order of their beginnings, so that workers have computed them
  // just before. At the end, the longest ones go first.
  using Order = std::tuple<uint64_t, uint64_t, RowId>;
  Order order_of(RowId id, const Row& row) const;

  const LedgerConfig config_;
  Random random_;
  Window window_;
  std::map<RowId, Row> rows_;
  std::map<AttemptId, Attempt> attempts_;
  std::set<Order> waiting_;
  std::set<std::pair<Instant, RowId>> backoff_;  // By due time.
  uint64_t reads_ = 0;
  size_t noting_ = 0;
  uint64_t attempts_made_ = 0;
  bool reading_ = false;   // ReadRows is under way.
  bool all_read_ = false;  // The last rows are in memory: the longest go first.
  bool stopping_ = false;
  bool finished_ = false;
  std::string stop_reason_;
  Instant closed_until_{};  // Nothing is started before.
  Duration closed_for_{};
  AttemptId probe_;                        // The last attempt that was let in after a pause.
  Instant progress_at_{};                  // The last answer; zero: none yet.
  std::array<Duration, 128> durations_{};  // The last ones, of answers.
  size_t durations_seen_ = 0;
};

}  // namespace pdjob::batch
