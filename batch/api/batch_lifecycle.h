// BatchLifecycle: decides what each batch of the Batch API does next, and what its record says.
//
// Tenants take turns. The next batch to run is of the tenant that has the fewest running; of those,
// of the one that was served least recently; of its batches, the oldest. If no place is free, a
// running batch makes room: at once if its tenant has two more running than one that waits,
// otherwise after turn_seconds. The places of prepared batches are shared in the same way.
//
// A failure of a batch's files or of its run is tried again, after pauses that grow. A batch that
// never ran fails for good after tries_max. One that ran has answers: it is tried until its window
// has ended or it is cancelled, and then it fails, too.
//
//                PrepareJob            JobPrepared           RunJob          (StopJob)
//   kWaiting ──────────────> kPreparing ────────> kPrepared ───────> kRunning ───────> kStopping
//      ^                          │                 │  ^                │                  │
//      │                          │     NameResults │  └── RunEnded ────┴──────────────────┘
//      │                          │                 v   RecordStored            ResultsMade
//      └── JobFailed (any stage) ─┘              kNaming ───────────> kFinishing ──────────>
//      EndBatch
//   A batch that makes room is kYielding between kRunning and its RunEnded.
//
// A window is measured by the monotonic clock of its process, so a step of the wall clock does not
// end it. The times of a record never go back.
//
// A crash forgets the stages. The records survive: the next process begins each batch that has not
// ended with kWaiting, and its job goes on with its own ledger. A result file has its name in the
// stored record before it is made, so a crash leaves no file that nobody knows. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "batch/catalog/api_records.h"
#include "common/core.h"
#include "common/time.h"

namespace pdjob::batch {

struct LifecycleConfig {
  size_t preparing_max = 2;
  size_t running_max = 4;
  size_t alive_max = 16;  // Beyond kWaiting; those that are to end come in besides.
  uint32_t tries_max = 8;
  Duration retry_min = std::chrono::seconds(5);  // The first pause; each one is twice as long,
  Duration retry_max = std::chrono::minutes(5);  // up to this one.
  Duration turn = std::chrono::minutes(1);       // So long a batch runs while other tenants wait.
};

// Events. `id`: of a batch.
struct WorldSeen {  // About once a second.
  int64_t unix_seconds = 0;
  bool disk_full = false;              // Nothing runs.
  std::set<std::string> full_tenants;  // Nothing of these runs.
};
struct BatchAdded {
  BatchRecord batch;  // It is stored, and its folder is made.
};
// Requires: can_cancel() of its record. A StoreRecord of the batch is the first effect.
struct CancelAsked {
  std::string id;
};
struct JobPrepared {
  std::string id;
  std::string errors;  // Why it cannot run; empty: it can.
  std::string model;
  int64_t total = 0;  // Rows.
  bool all_ended = false;
};
struct RunEnded {
  std::string id;
  bool all_ended = false;
  bool progressed = false;  // As of JobFailed.
};
struct ResultsNamed {
  std::string id;
  std::string output_file_id;
  std::string error_file_id;
};
struct RecordStored {
  std::string id;
  uint64_t change = 0;
};
struct ResultsMade {
  std::string id;
  int64_t answered = 0;
  int64_t failed = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  int64_t output_bytes = 0;
  int64_t error_bytes = 0;
  bool expired = false;  // Some rows have.
};
struct JobFailed {  // While it was prepared, run or finished.
  std::string id;
  std::string why;          // For the log.
  std::string errors;       // For the batch's `errors`.
  bool progressed = false;  // Some rows have ended since it was prepared.
};
struct DrainAsked {};
using LifecycleEvent =
    std::variant<TimePassed, WorldSeen, BatchAdded, CancelAsked, JobPrepared, RunEnded,
                 ResultsNamed, RecordStored, ResultsMade, JobFailed, DrainAsked>;

// Effects.
struct PrepareJob {  // JobPrepared or JobFailed follows.
  std::string id;
};
struct RunJob {  // RunEnded or JobFailed follows.
  std::string id;
};
struct YieldJob {  // It starts no more rows, and its run ends when those in flight have ended.
  std::string id;
};
struct StopJob {  // The run ends soon: rows in flight are aborted.
  std::string id;
};
struct UnloadJob {  // It is prepared again later.
  std::string id;
};
struct NameResults {  // ResultsNamed follows.
  std::string id;
};
enum class Rest { kLeft, kExpired };  // How rows that have not ended are treated.
struct FinishJob {                    // ResultsMade or JobFailed follows.
  std::string id;
  Rest rest = Rest::kLeft;
};
struct DropJob {  // It begins again later.
  std::string id;
  std::string why;
};
struct StoreRecord {  // RecordStored follows.
  BatchRecord batch;
  uint64_t change = 0;
};
// Store the record and its result files in one change, then remove the batch's folder. The files'
// numbers are not set.
struct EndBatch {
  BatchRecord batch;
  std::vector<FileRecord> results;
  std::vector<std::string>
      unnamed;  // Ids of files to remove: they may be there, and have no record.
};
struct Drained {};  // Nothing runs.
using LifecycleEffect = std::variant<PrepareJob, RunJob, YieldJob, StopJob, UnloadJob, NameResults,
                                     FinishJob, DropJob, StoreRecord, EndBatch, Drained>;

bool can_cancel(const BatchRecord& batch);

class BatchLifecycle {
 public:
  explicit BatchLifecycle(const LifecycleConfig& config) : config_(config) {}

  // Requires: a WorldSeen comes first.
  void step(const LifecycleEvent& event, Instant now, std::vector<LifecycleEffect>& effects);
  // WorldSeen is all that it waits for.
  Instant next_wakeup() const { return kNever; }

  // Why the batch does not get on, as its `errors` would say it. Empty: it gets on, or has ended.
  std::string trouble(const std::string& id) const;

 private:
  enum class Stage {
    kWaiting,
    kPreparing,
    kPrepared,
    kRunning,
    kYielding,
    kStopping,
    kNaming,
    kFinishing
  };
  enum class Ending { kNone, kCompleted, kExpired, kCancelled };
  struct Live {
    BatchRecord batch;
    Stage stage = Stage::kWaiting;
    Ending ending = Ending::kNone;  // From kNaming on.
    bool all_ended = false;         // Its rows.
    Instant window_ends{};
    Instant not_before{};   // After a failure.
    uint32_t failures = 0;  // Since the last progress.
    std::string trouble;    // The errors of the last one.
    Instant ran_at{};       // Since when it runs.
    bool had_turn = false;  // It ran since it was prepared.
    uint64_t change = 0;    // kNaming: it waits for this one.
  };
  struct Turn : pdjob::Turn<LifecycleEffect> {
    int64_t seconds;  // Since 1970.
  };
  // How much of something tenants have.
  using Counts = std::map<std::string, size_t>;

  void take(const TimePassed& /*event*/, Turn& /*turn*/) {}
  void take(const WorldSeen& /*event*/, Turn& /*turn*/) {}
  void take(const BatchAdded& event, Turn& turn);
  void take(const CancelAsked& event, Turn& turn);
  void take(const JobPrepared& event, Turn& turn);
  void take(const RunEnded& event, Turn& turn);
  void take(const ResultsNamed& event, Turn& turn);
  void take(const RecordStored& event, Turn& turn);
  void take(const ResultsMade& event, Turn& turn);
  void take(const JobFailed& event, Turn& turn);
  void take(const DrainAsked& event, Turn& turn);

  // Requires: it has not ended.
  Live& live(const std::string& id);
  uint64_t store(const BatchRecord& batch, Turn& turn);
  void end(const BatchRecord& batch, std::vector<FileRecord> results, Turn& turn);
  static Ending ending_of(const Live& live, Instant now);
  bool may_run(const Live& live) const;
  uint64_t served(const std::string& tenant) const;
  void give_up(Live& one, Turn& turn);
  void forget(int64_t number);
  size_t count_of(Stage stage) const;
  Counts counts_of(const auto& counted) const;
  Live* next_of(Counts& counts, const auto& wanted);
  void move_on(Turn& turn);
  void prepare_some(Turn& turn);
  void prepare(Live& one, Turn& turn);
  void make_room_to_prepare(Turn& turn);
  void run_some(Turn& turn);
  void make_room_to_run(Turn& turn);
  static void yield(Live& one, Turn& turn);

  const LifecycleConfig config_;
  std::map<int64_t, Live> lives_;  // By number: in order of their making.
  std::map<std::string, int64_t> numbers_;
  WorldSeen world_;
  Instant seen_at_{};
  uint64_t changes_ = 0;
  uint64_t turns_ = 0;
  std::map<std::string, uint64_t> served_;  // By tenant: its last turn. Absent: none yet.
  bool draining_ = false;
  bool drained_ = false;
};

}  // namespace pdjob::batch
