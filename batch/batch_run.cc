#include "batch/batch_run.h"

#include <utility>

#include "batch/answer_record.h"
#include "batch/input/row_splitter.h"

namespace pdjob::batch {
namespace {

// Records are written at the latest after this time, or when they are so many bytes.
constexpr Duration kFlushAfter = std::chrono::milliseconds(100);
constexpr size_t kFlushBytes = size_t{4} << 20;
constexpr Duration kWorkersCounted = std::chrono::seconds(2);  // How often.
constexpr size_t kUnlimited = 1024;
// Tokens that a server tells at once, and how often they go to the disk: what a kill costs a row.
constexpr uint32_t kTellEvery = 16;
constexpr Duration kToldAfter = std::chrono::milliseconds(250);
constexpr size_t kToldMax = size_t{1} << 16;  // Notes that wait for a slow disk.

LedgerConfig config_of(const BatchOptions& options) {
  LedgerConfig config{
      .attempts_max = options.attempts, .losses_max = options.losses, .patience = options.patience};
  config.window.max = options.concurrency > 0 ? options.concurrency : kUnlimited;
  if (options.concurrency > 0) {
    config.window.first = options.concurrency;
  } else if (options.first_window > 0) {
    config.window.first = options.first_window;
  }
  return config;
}

std::vector<std::string> paths_of(const std::vector<InputFile>& files) {
  std::vector<std::string> paths;
  for (const InputFile& file : files) {
    paths.push_back(file.path);
  }
  return paths;
}

}  // namespace

BatchRun::BatchRun(net::Loop& loop, const Parts& parts, const BatchOptions& options,
                   std::vector<InputFile> files, const RowCounts& counts, std::string nonce)
    : loop_(loop),
      parts_(parts),
      files_(std::move(files)),
      nonce_(std::move(nonce)),
      row_files_(paths_of(files_)),
      counts_(counts),
      ledger_(config_of(options), loop.entropy()),
      runner_(loop, ledger_, *this),
      disk_(loop.make_helper("batch-disk")) {}

BatchRun::~BatchRun() {
  loop_.cancel(flush_timer_);
  loop_.cancel(told_timer_);
  loop_.cancel(workers_timer_);
}

void BatchRun::start(std::function<void(const End&)> ended) {
  ended_ = std::move(ended);
  parts_.client.on_told([this](AttemptId attempt, std::string_view note) { told(attempt, note); });
  count_workers();
  runner_.submit(TimePassed{});
}

void BatchRun::stop(const std::string& reason) { runner_.submit(StopAsked{reason}); }

void BatchRun::set_window(size_t rows) { runner_.submit(WindowSet{rows}); }

void BatchRun::yield() { runner_.submit(YieldAsked{}); }

Progress BatchRun::progress() const {
  return {.rows = counts_,
          .in_flight = ledger_.in_flight(),
          .window = ledger_.window(),
          .workers = workers_,
          .went_on = half_done_.went_on(),
          .trouble = trouble_};
}

void BatchRun::end(const End& how) {
  if (ended_) {
    told_due_ = !told_.empty();
    if (!blames_.empty() || told_due_) {
      flush();  // After the one that may be under way.
    }
    loop_.post([ended = std::exchange(ended_, nullptr), how] { ended(how); });
  }
}

void BatchRun::count_workers() {
  parts_.client.count_workers([this](size_t workers) {
    workers_ = workers;
    runner_.submit(WorkersCounted{workers});
  });
  workers_timer_ = loop_.call_at(loop_.now() + kWorkersCounted, [this] { count_workers(); });
}

// ---- Reading rows

void BatchRun::carry_out(const ReadRows& effect) {
  disk_->run([this, after = last_read_, count = effect.count, alive = std::weak_ptr(alive_)] {
    auto read = read_back(parts_.ledger, after, count);
    loop_.post([this, read = std::move(read), count, alive]() mutable {
      if (!alive.expired()) {
        rows_read(std::move(read), count);
      }
    });
  });
}

Result<BatchRun::ReadBack> BatchRun::read_back(LedgerFile& ledger, RowId after, size_t count) {
  ReadBack read;
  PDJOB_TRY(read.rows, ledger.pending(after, count));
  if (!read.rows.empty()) {
    PDJOB_TRY(read.half_done, ledger.half_done(read.rows.front().id, read.rows.back().id));
  }
  return read;
}

void BatchRun::rows_read(Result<ReadBack> read, size_t asked) {
  if (!read) {
    end({.broken = true, .reason = "the ledger cannot be read: " + read.error().message});
    return;
  }
  for (const auto& [row, notes] : read->half_done) {
    half_done_.restore(row, notes);
  }
  RowsRead event{.last = read->rows.size() < asked};
  for (InputRow& row : read->rows) {
    last_read_ = row.id;
    event.rows.push_back({row.id, row.weight, row.blame, row.beginning});
    rows_.emplace(row.id, OpenRow{.place = row});
  }
  runner_.submit(std::move(event));
}

// ---- Asking

RowReader::Position BatchRun::place_of(const InputRow& row) const {
  const InputFile& file = files_[row.file];
  return {
      .format = static_cast<RowFormat>(file.format), .number = row.id.value, .header = file.header};
}

std::string BatchRun::place_text(const InputRow& row) const {
  return files_[row.file].name + ":" + std::to_string(row.line);
}

// Rows are read on the loop: most come from the page cache, in the order of the file.
void BatchRun::carry_out(const StartAttempt& effect) {
  OpenRow& row = rows_.at(effect.row);
  attempts_[effect.attempt].began = loop_.now();
  if (parts_.totals != nullptr && effect.number > 1) {
    ++parts_.totals->retries;
  }
  if (row.place.length > kRowBytesMax) {
    refuse(effect.attempt, row.place,
           {.code = "row_too_long",
            .message = "it has " + std::to_string(row.place.length) + " bytes; at most " +
                       std::to_string(kRowBytesMax) + " are allowed"});
    return;
  }
  std::string text;
  const Status read =
      row_files_.read(row.place.file, row.place.offset, row.place.length, row.place.digest, text);
  if (!read) {
    end({.broken = true, .reason = read.error().message});
    return;
  }
  RowError error;
  auto request = parts_.reader.request(text, place_of(row.place), error);
  row.custom_id = error.custom_id;
  if (!request) {
    refuse(effect.attempt, row.place, error);
    return;
  }
  if (row.place.duplicate_of != RowId{}) {
    refuse(effect.attempt, row.place, {.code = "duplicate_custom_id", .message = ""});
    return;
  }
  HalfDoneRows::Beginning beginning = half_done_.begin(effect.row, effect.attempt);
  parts_.client.start(
      {.id = effect.attempt,
       .target = std::move(request->target),
       .request_id = "batch-" + nonce_ + "-" + std::to_string(effect.row.value) + "-" +
                     std::to_string(effect.number),
       .body = std::move(request->body),
       .goes_on = std::move(beginning.goes_on),
       .tell_every = beginning.tells ? kTellEvery : 0,
       .custom_id = row.custom_id},
      [this](AttemptId attempt, RowResult result) { attempt_ended(attempt, std::move(result)); });
}

void BatchRun::refuse(AttemptId attempt, const InputRow& row, const RowError& error) {
  RowResult result{.outcome = Outcome::kRefused, .cause = error.code, .message = error.message};
  if (row.duplicate_of == RowId{}) {
    attempt_ended(attempt, std::move(result));
    return;
  }
  // Duplicates are rare: the ledger says where the other row is.
  disk_->run([this, attempt, id = row.duplicate_of, result, alive = std::weak_ptr(alive_)] {
    auto first = parts_.ledger.row(id);
    loop_.post([this, attempt, first = std::move(first), result, alive]() mutable {
      if (!alive.expired()) {
        result.message =
            "its custom_id is that of " + (first ? place_text(*first) : std::string("another row"));
        attempt_ended(attempt, std::move(result));
      }
    });
  });
}

void BatchRun::attempt_ended(AttemptId attempt, RowResult result) {
  if (half_done_.ended(attempt, result.status == 400 ? HalfDoneRows::End::kRefused
                                                     : HalfDoneRows::End::kOther)) {
    result.outcome = Outcome::kLost;  // It is asked again, from its first token.
  }
  const AttemptEnded event{attempt, result.outcome, result.retry_after};
  if (!result.hopeless.empty()) {
    end({.broken = true,
         .hopeless = true,
         .refuses_key = result.refuses_key(),
         .reason = result.hopeless});
    return;
  }
  const bool refused_all =
      result.outcome == Outcome::kUnreachable || result.outcome == Outcome::kBusy;
  trouble_ = refused_all ? result.message : "";
  if (const auto found = attempts_.find(attempt); found != attempts_.end()) {
    found->second.result = std::move(result);
  }
  runner_.submit(event);
}

void BatchRun::carry_out(const CancelAttempt& effect) {
  parts_.client.cancel(effect.attempt);
  half_done_.ended(effect.attempt, HalfDoneRows::End::kOther);
  attempts_.erase(effect.attempt);
}

void BatchRun::carry_out(const DropReply& effect) { attempts_.erase(effect.attempt); }

void BatchRun::carry_out(const NoteBlame& effect) {
  blames_[effect.row] = effect.blame;
  flush_soon();
}

// ---- Noting

// If the disk is slow, later notes are not kept: they would follow on none.
void BatchRun::told(AttemptId attempt, std::string_view note) {
  const RowId row = half_done_.take(attempt, note);
  if (row == RowId{} || told_.size() >= kToldMax) {
    return;
  }
  told_.emplace_back(row, note);
  if (told_timer_ == net::TimerId{}) {
    told_timer_ = loop_.call_at(loop_.now() + kToldAfter, [this] {
      told_timer_ = {};
      told_due_ = true;
      flush_soon();
    });
  }
}

void BatchRun::carry_out(const NoteRow& effect) {
  const OpenAttempt attempt = std::move(attempts_.extract(effect.attempt).mapped());
  OpenRow& row = rows_.at(effect.row);
  const RowName name{.record_id = "batch_req_" + nonce_ + "_" + std::to_string(effect.row.value),
                     .custom_id = row.custom_id,
                     .place = place_text(row.place)};
  const auto passed =
      std::chrono::duration_cast<std::chrono::milliseconds>(loop_.now() - attempt.began);
  Record record{.id = effect.row,
                .kind = effect.answered ? RecordKind::kOutput : RecordKind::kError,
                .line = effect.answered ? answer_line(name, attempt.result)
                                        : error_line(name, attempt.result),
                .stats = {.ended_at = loop_.unix_seconds(),
                          .milliseconds = static_cast<uint32_t>(passed.count()),
                          .attempts = effect.attempts}};
  if (effect.answered) {
    read_usage(attempt.result.body, record.stats);
  } else {
    record.stats.cause = attempt.result.cause;
  }
  half_done_.forget(effect.row);
  std::erase_if(told_, [row = effect.row](const auto& note) { return note.first == row; });
  notes_bytes_ += record.line.size();
  notes_.push_back(std::move(record));
  flush_soon();
}

void BatchRun::flush_soon() {
  if (flushing_ || (notes_.empty() && blames_.empty() && !told_due_)) {
    return;
  }
  const Instant due = flushed_at_ + kFlushAfter;
  // With nothing in flight, no further row comes that could share the sync.
  if (notes_bytes_ >= kFlushBytes || loop_.now() >= due || ledger_.in_flight() == 0) {
    flush();
  } else if (flush_timer_ == net::TimerId{}) {
    flush_timer_ = loop_.call_at(due, [this] {
      flush_timer_ = {};
      flush_soon();
    });
  }
}

void BatchRun::flush() {
  flushing_ = true;
  const bool told_due = std::exchange(told_due_, false);
  notes_bytes_ = 0;
  disk_->run([this, records = std::exchange(notes_, {}), blames = std::exchange(blames_, {}),
              told = told_due ? std::exchange(told_, {}) : LedgerFile::HalfDone{},
              alive = std::weak_ptr(alive_)] {
    Status noted = records.empty() ? ok() : parts_.records.note(records);
    if (noted && !blames.empty()) {
      noted = parts_.ledger.note_blames(blames);
    }
    if (noted && !told.empty()) {
      noted = parts_.ledger.note_half_done(told);
    }
    std::vector<RowId> rows;
    RowCounts more;
    for (const Record& record : records) {
      rows.push_back(record.id);
      (record.kind == RecordKind::kOutput ? more.answered : more.failed) += 1;
      more.completion_tokens += record.stats.completion_tokens;
    }
    loop_.post([this, noted, rows = std::move(rows), more, alive] {
      if (!alive.expired()) {
        flushed(noted, rows, more);
      }
    });
  });
}

void BatchRun::flushed(const Status& status, const std::vector<RowId>& rows,
                       const RowCounts& more) {
  flushing_ = false;
  flushed_at_ = loop_.now();
  if (!status) {
    end({.broken = true,
         .reason = status.error().message + ". All rows that were noted before are safe"});
    return;
  }
  counts_.answered += more.answered;
  counts_.failed += more.failed;
  counts_.completion_tokens += more.completion_tokens;
  if (parts_.totals != nullptr) {
    parts_.totals->answered += more.answered;
    parts_.totals->failed += more.failed;
    parts_.totals->completion_tokens += more.completion_tokens;
  }
  for (const RowId id : rows) {
    rows_.erase(id);
  }
  runner_.submit(RowsNoted{rows});
  flush_soon();
}

void BatchRun::carry_out(const Finished& effect) {
  end({.complete = effect.complete,
       .broken = !effect.complete && !effect.reason.empty(),
       .reason =
           effect.reason + (effect.reason.empty() || trouble_.empty() ? "" : ": " + trouble_)});
}

}  // namespace pdjob::batch
