// LiveBatches: the batches that have not ended. It carries out what batch_turns.h decides, and
// notes in the books what becomes of them. Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "batch/api/batch_job.h"
#include "batch/api/batch_turns.h"
#include "batch/catalog/books.h"
#include "batch/config/batch_api_config.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

class LiveBatches {
 public:
  // `server`: the job's routers. Rows show its key, with the name of the batch's tenant.
  LiveBatches(net::Loop& loop, Books& books, const BatchApiConfig& config, RowServer server,
              std::function<bool()> disk_full);
  ~LiveBatches() { loop_.cancel(timer_); }
  LiveBatches(const LiveBatches&) = delete;
  LiveBatches& operator=(const LiveBatches&) = delete;

  // Goes on with what the books have.
  void start();
  // The batch is in the books, and its folder is made.
  void add(const BatchRecord& batch);
  // The books have changed: a batch is to be cancelled.
  void look() { turn(); }
  // Aborts what is in flight, and starts nothing more. Calls `then` once nothing runs.
  void drain(std::function<void()> then);

  // With the counts of now.
  BatchRecord seen(const BatchRecord& batch) const;
  size_t rows_in_flight() const;

 private:
  struct Live {
    std::string id;
    Stage stage = Stage::kWaiting;
    bool all_ended = false;
    int64_t not_before = 0;
    std::unique_ptr<BatchJob> job;  // From kPreparing on.
  };

  void turn();
  void tick();
  Live* find(const std::string& id);
  std::unique_ptr<BatchJob> job_of(const BatchRecord& batch) const;
  void prepare(Live& live, const BatchRecord& batch);
  void prepared(const std::string& id, const Result<BatchJob::Prepared>& prepared);
  void run(Live& live);
  void run_ended(const std::string& id, const BatchRun::End& end);
  void finish(Live& live, BatchRecord batch, Ending ending);
  void finished(const std::string& id, Ending ending, const Result<BatchJob::Finished>& finished);
  // It begins again later.
  void failed(Live& live, const std::string& why);
  void end(const BatchRecord& batch, std::vector<FileRecord> results);

  net::Loop& loop_;
  Books& books_;
  const BatchApiConfig& config_;
  const RowServer server_;
  const std::function<bool()> disk_full_;
  std::map<int64_t, Live> lives_;  // By number.
  std::function<void()> drained_;
  bool draining_ = false;
  net::TimerId timer_;
};

}  // namespace pdjob::batch
