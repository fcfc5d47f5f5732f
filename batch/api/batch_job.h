// BatchJob: one batch of the Batch API, from its input file to its answers. It has a folder with a
// ledger, as each batch has (batch/), so it goes on where it was when its process died. Its owner
// decides when it does what. Loop-bound; it reads and writes on a helper thread.
//
//   prepare() ──> run() ──> (stop()) ──> finish()
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "batch/api/batch_lifecycle.h"
#include "batch/batch_folder.h"
#include "batch/batch_options.h"
#include "batch/batch_run.h"
#include "batch/http_row_client.h"
#include "common/result.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

struct BatchJobSetting {
  std::string folder;
  std::string filename;  // Of the input, for people.
  std::string endpoint;  // Of all rows.
  uint64_t rows_max = 0;
  uint64_t in_flight_max = 0;  // 0: as many as help.
  RowServer server;
  RunTotals* totals = nullptr;  // Counts there; null: nowhere.
};

class BatchJob {
 public:
  BatchJob(net::Loop& loop, BatchJobSetting setting);
  ~BatchJob();
  BatchJob(const BatchJob&) = delete;
  BatchJob& operator=(const BatchJob&) = delete;

  struct Prepared {
    std::string errors;  // Why it cannot run (input_check.h); empty: it can.
    std::string model;   // Known only when the input was checked now.
    RowCounts rows;
  };
  // Checks the input and makes the ledger, unless an earlier process did. Calls `then` in a later
  // turn. Requires: the folder has `input.jsonl`.
  void prepare(std::function<void(Result<Prepared>)> then);

  // Requires: it is prepared. `ended` is called in a later turn.
  void run(std::function<void(const BatchRun::End&)> ended);
  // Aborts what is in flight.
  void stop() { run_->stop(""); }
  // Starts nothing more: the run ends when what is in flight has ended.
  void yield() { run_->yield(); }
  // Rows that may be in flight; 0: it does not run.
  size_t window() const { return run_ == nullptr ? 0 : run_->progress().window; }
  // Requires: it runs.
  void set_window(size_t rows) { run_->set_window(rows); }

  struct Target {
    std::string output;  // Paths; a file is made only if it has lines.
    std::string errors;
  };
  struct Finished {
    RowCounts rows;
    uint64_t prompt_tokens = 0;
    uint64_t output_bytes = 0;
    uint64_t error_bytes = 0;
    bool expired = false;  // Some rows have.
  };
  // Writes the results. May be called again after a crash in its midst. Requires: it is prepared
  // and does not run.
  void finish(Rest rest, Target target, std::function<void(Result<Finished>)> then);

  size_t in_flight() const { return run_ == nullptr ? 0 : run_->progress().in_flight; }
  // Some rows have ended since it was prepared.
  bool progressed() const;
  // While it runs; otherwise as it was prepared.
  RowCounts counts() const { return run_ == nullptr ? counts_ : run_->progress().rows; }

 private:
  Result<Prepared> prepare_now();
  Result<Finished> finish_now(Rest rest, const Target& target);
  Status expire_rows();

  net::Loop& loop_;
  const BatchJobSetting setting_;
  const BatchOptions options_;
  const RowReader reader_;
  const std::unique_ptr<Disk> disk_ = real_disk(Readers::kOwner);
  // Made by prepare(). Used by the run, or by the helper.
  std::optional<BatchFolder> folder_;
  std::unique_ptr<LedgerFile> ledger_;
  std::unique_ptr<Records> records_;
  std::vector<InputFile> files_;
  std::string nonce_;
  RowCounts prepared_;
  RowCounts counts_;
  std::unique_ptr<RowClient> client_;
  std::unique_ptr<BatchRun> run_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  std::unique_ptr<net::Helper> helper_;  // Ends first.
};

}  // namespace pdjob::batch
