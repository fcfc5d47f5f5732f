// LiveBatches: the batches that have not ended. It runs the core of batch_lifecycle.h: it makes the
// jobs of batches, and notes in the books what becomes of them. Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "batch/api/batch_job.h"
#include "batch/api/batch_lifecycle.h"
#include "batch/catalog/books.h"
#include "batch/config/batch_api_config.h"
#include "net/loop/core_runner.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

struct DiskRoom {
  bool full = false;
  std::set<std::string> full_tenants;
};

class LiveBatches {
 public:
  // `server`: the job's routers. Rows show its key, with the name of the batch's tenant.
  // `lifecycle`: its limits of batches come from `config`.
  LiveBatches(net::Loop& loop, Books& books, const BatchApiConfig& config, RowServer server,
              std::function<DiskRoom()> disk_room, const LifecycleConfig& lifecycle);
  ~LiveBatches() { loop_.cancel(timer_); }
  LiveBatches(const LiveBatches&) = delete;
  LiveBatches& operator=(const LiveBatches&) = delete;

  // Goes on with what the books have.
  void start();
  // The batch is in the books, and its folder is made.
  void add(const BatchRecord& batch);
  // Calls `stored` once that is on disk. Requires: can_cancel(), and it is in the books.
  void cancel(const std::string& id, std::function<void()> stored);
  // Aborts what is in flight, and starts nothing more. Calls `then` once nothing runs.
  void drain(std::function<void()> then);

  // With the counts of now. If it does not get on, its `errors` say why.
  BatchRecord seen(const BatchRecord& batch) const;
  size_t rows_in_flight() const;
  // Counts all runs of this process.
  const RunTotals& totals() const { return totals_; }
  // Since this process began.
  const std::map<BatchState, uint64_t>& ended() const { return ended_; }
  // Jobs that failed, since this process began.
  uint64_t failures() const { return failures_; }

 private:
  using Runner = net::CoreRunner<LiveBatches, BatchLifecycle, LifecycleEvent, LifecycleEffect>;
  friend Runner;

  void stepped(const LifecycleEvent& /*event*/, const std::vector<LifecycleEffect>& /*effects*/) {}
  void carried_out(const LifecycleEvent& /*event*/) {}
  void carry_out(const PrepareJob& effect);
  void carry_out(const RunJob& effect);
  void carry_out(const YieldJob& effect);
  void carry_out(const StopJob& effect);
  void carry_out(const UnloadJob& effect);
  void carry_out(const NameResults& effect);
  void carry_out(const FinishJob& effect);
  void carry_out(const DropJob& effect);
  void carry_out(const StoreRecord& effect);
  void carry_out(const EndBatch& effect);
  void carry_out(const Drained& effect);

  void tick();
  void see_world();
  void share_windows();
  std::unique_ptr<BatchJob> job_of(const BatchRecord& batch);
  void failed(const std::string& id, const std::string& code, const std::string& why);

  net::Loop& loop_;
  Books& books_;
  const BatchApiConfig& config_;
  const RowServer server_;
  const std::function<DiskRoom()> disk_room_;
  std::map<std::string, std::unique_ptr<BatchJob>> jobs_;  // Of batches that are prepared.
  std::function<void()> on_stored_;                        // Of the cancel that is being asked.
  std::function<void()> drained_;
  RunTotals totals_;
  std::map<BatchState, uint64_t> ended_;
  uint64_t failures_ = 0;
  BatchLifecycle lifecycle_;
  Runner runner_;
  uint64_t ticks_ = 0;
  net::TimerId timer_;
};

}  // namespace pdjob::batch
