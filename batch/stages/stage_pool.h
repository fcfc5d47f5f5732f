// StagePool: decides which process of a stage gets which row, what happens when a process dies, and
// who is to blame. A process answers its rows in order, so its next line belongs to its first row.
//
//                 SendStageRow             StageAnswered
//   row: waiting --------------> under way ---------------> answered
//           ^                        |
//           +------ StageDied -------+-- first in line at three deaths --> convicted --> failed
//
// A row that was first in line when its process died is asked alone next. So another death is
// its own fault. A convicted row fails once the stage has proved that it works: by an answer to
// another row. A stage whose processes only die is given up, and fails no row.
//
// The rows in memory are bounded by the attempts in flight of the batch's ledger. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/id.h"
#include "common/time.h"

namespace pdjob::batch {

// One passage of a row through the stage; ascending, never reused.
using StageRow = StrongId<struct StageRowTag, uint64_t>;
// One start of a process; never reused.
using StageRun = StrongId<struct StageRunTag, uint64_t>;

struct StagePoolConfig {
  uint32_t workers = 1;
  size_t pipeline = 4;  // Rows of one process.
  Duration timeout = std::chrono::seconds(60);
  Duration start_timeout = std::chrono::minutes(2);  // Added for the first row of a process.
  uint32_t deaths_max = 3;                           // As first in line; then a row is convicted.
  // A stage is given up when one of its workers died so often since the last answer of the stage.
  uint32_t deaths_before_first_answer = 7;
  uint32_t deaths_in_a_row = 24;
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(1);
};

// Events.
struct StageRowCame {
  StageRow row;
};
// Nobody wants its answer any more.
struct StageRowLeft {
  StageRow row;
};
// The process wrote its next line.
struct StageAnswered {
  StageRun run;
};
// The process is gone, or what it wrote made no sense and the shell has ended it.
struct StageDied {
  StageRun run;
  std::string how;
};
using StageEvent = std::variant<StageRowCame, StageRowLeft, StageAnswered, StageDied, TimePassed>;

// Effects.
struct StartStageProcess {
  StageRun run;
  uint32_t worker = 0;
};
// StageDied does not follow.
struct EndStageProcess {
  StageRun run;
};
struct SendStageRow {
  StageRun run;
  StageRow row;
};
// The line of this event is the row's answer.
struct PassStageAnswer {
  StageRow row;
};
struct FailStageRow {
  StageRow row;
  std::string reason;
};
struct TellStageDeath {
  uint32_t worker = 0;
  std::string how;
};
// All rows are dropped; nothing follows.
struct GiveUpStage {
  std::string reason;
};
using StageEffect = std::variant<StartStageProcess, EndStageProcess, SendStageRow, PassStageAnswer,
                                 FailStageRow, TellStageDeath, GiveUpStage>;

class StagePool {
 public:
  explicit StagePool(const StagePoolConfig& config);

  void step(const StageEvent& event, Instant now, std::vector<StageEffect>& effects);
  Instant next_wakeup() const;

  // The row whose answer the next line of the process is; empty: it has none, or is gone.
  std::optional<StageRow> first_of(StageRun run) const;
  size_t waiting() const { return waiting_.size() + convicted_.size(); }
  size_t under_way() const;
  uint64_t deaths() const { return deaths_; }

 private:
  // A place for a process.
  struct Worker {
    StageRun run;               // Zero: none runs.
    std::deque<StageRow> rows;  // Under way, in order. Some may have left.
    Instant first_since{};      // When the first of them became the first.
    Instant not_before{};       // For the next start.
    bool alone = false;         // Its only row is a suspect.
    bool answered = false;      // In this run.
    uint32_t deaths = 0;        // In a row, of this worker.
    uint32_t fruitless = 0;     // Since the last answer of the stage.
  };
  using Turn = pdjob::Turn<StageEffect>;

  void take(const StageRowCame& event, Turn& turn);
  void take(const StageRowLeft& event, Turn& turn);
  void take(const StageAnswered& event, Turn& turn);
  void take(const StageDied& event, Turn& turn);
  void take(const TimePassed& /*event*/, Turn& /*turn*/) {}

  void end_late(Turn& turn);
  void died(Worker& worker, const std::string& how, Turn& turn);
  void blame(StageRow row, const std::string& how);
  void fail_convicted(Turn& turn);
  void judge_convicted(Turn& turn);
  void send_waiting(Turn& turn);
  // Null: the row must wait.
  Worker* choose(bool alone, Turn& turn);
  Worker* find(StageRun run);
  Instant deadline_of(const Worker& worker) const;
  Duration backoff_after(uint32_t deaths) const;

  const StagePoolConfig config_;
  std::vector<Worker> workers_;
  struct Row {
    uint32_t deaths = 0;  // While it was first in line.
    std::string how;      // The last one.
  };
  std::map<StageRow, Row> rows_;
  std::set<StageRow> waiting_;    // The oldest first.
  std::set<StageRow> convicted_;  // They wait for a proof that the stage works.
  uint64_t runs_ = 0;
  uint64_t deaths_ = 0;
  bool ever_answered_ = false;
  bool given_up_ = false;
};

}  // namespace pdjob::batch
