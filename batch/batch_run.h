// BatchRun: the shell of the Ledger core. It reads the rows that the core asks for, and sends them
// by a RowClient. A helper thread notes their ends, many at a time: one sync of the disk serves all
// rows that ended meanwhile. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "batch/batch_options.h"
#include "batch/core/ledger.h"
#include "batch/half_done_rows.h"
#include "batch/input/row_files.h"
#include "batch/input/row_reader.h"
#include "batch/progress.h"
#include "batch/row_client.h"
#include "batch/store/ledger_file.h"
#include "batch/store/records.h"
#include "net/loop/core_runner.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

// Counters of many runs.
struct RunTotals {
  uint64_t answered = 0;  // Rows.
  uint64_t failed = 0;    // Rows.
  uint64_t completion_tokens = 0;
  uint64_t retries =
      0;  // Attempts beyond the first one of a row; stragglers that are asked twice, too.
};

class BatchRun {
 public:
  // All must outlive the run. Only the run uses them.
  struct Parts {
    LedgerFile& ledger;
    Records& records;
    RowClient& client;
    const RowReader& reader;
    RunTotals* totals = nullptr;  // Counts there; null: nowhere.
  };
  struct End {
    bool complete = false;     // Every row has ended.
    bool broken = false;       // The disk or the input failed, or the server is no use.
    bool hopeless = false;     // The server refuses every row: broken, too.
    bool refuses_key = false;  // That is why.
    std::string reason;        // Why it is not complete; empty: a person asked.
  };

  BatchRun(net::Loop& loop, const Parts& parts, const BatchOptions& options,
           std::vector<InputFile> files, const RowCounts& counts, std::string nonce);
  ~BatchRun();
  BatchRun(const BatchRun&) = delete;
  BatchRun& operator=(const BatchRun&) = delete;

  // Calls `ended` once, in a later turn.
  void start(std::function<void(const End&)> ended);
  // Cancels what is in flight, and notes what was answered.
  void stop(const std::string& reason);
  // Starts no more rows. The run ends when those in flight have ended.
  void yield();
  // As many rows may be in flight now, up to the options' limit.
  void set_window(size_t rows);
  Progress progress() const;

 private:
  using Runner = net::CoreRunner<BatchRun, Ledger, LedgerEvent, LedgerEffect>;
  friend Runner;

  void stepped(const LedgerEvent& /*event*/, const std::vector<LedgerEffect>& /*effects*/) {}
  void carried_out(const LedgerEvent& /*event*/) {}
  void carry_out(const ReadRows& effect);
  void carry_out(const StartAttempt& effect);
  void carry_out(const CancelAttempt& effect);
  void carry_out(const NoteRow& effect);
  void carry_out(const NoteBlame& effect);
  void carry_out(const DropReply& effect);
  void carry_out(const Finished& effect);

  struct ReadBack {
    std::vector<InputRow> rows;
    std::map<RowId, std::vector<std::string>> half_done;
  };
  static Result<ReadBack> read_back(LedgerFile& ledger, RowId after, size_t count);
  void rows_read(Result<ReadBack> read, size_t asked);
  void told(AttemptId attempt, std::string_view note);
  void attempt_ended(AttemptId attempt, RowResult result);
  RowReader::Position place_of(const InputRow& row) const;
  std::string place_text(const InputRow& row) const;
  // Ends an attempt that was not sent.
  void refuse(AttemptId attempt, const InputRow& row, const RowError& error);
  void flush_soon();
  void flush();
  void flushed(const Status& status, const std::vector<RowId>& rows, const RowCounts& more);
  void count_workers();
  void end(const End& how);

  struct OpenRow {
    InputRow place;
    std::string custom_id;
  };
  struct OpenAttempt {
    Instant began{};
    RowResult result;  // Once it has ended.
  };

  net::Loop& loop_;
  const Parts parts_;
  const std::vector<InputFile> files_;
  const std::string nonce_;
  std::function<void(const End&)> ended_;
  RowFiles row_files_;
  RowCounts counts_;
  size_t workers_ = 0;
  std::string trouble_;  // Of the last attempt, if the whole server refused it.
  std::map<RowId, OpenRow> rows_;
  std::map<AttemptId, OpenAttempt> attempts_;
  RowId last_read_;
  std::vector<Record> notes_;      // Not yet on their way to the disk.
  std::map<RowId, Blame> blames_;  // Not yet on their way to the disk.
  HalfDoneRows half_done_;
  LedgerFile::HalfDone told_;  // Not yet on their way to the disk.
  size_t notes_bytes_ = 0;
  bool told_due_ = false;
  net::TimerId told_timer_;
  bool flushing_ = false;
  Instant flushed_at_{};
  net::TimerId flush_timer_;
  net::TimerId workers_timer_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  Ledger ledger_;
  Runner runner_;
  std::unique_ptr<net::Helper> disk_;  // Ends first.
};

}  // namespace pdjob::batch
