#include "batch/api/live_batches.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/log.h"
#include "openai/headers.h"

namespace pdjob::batch {
namespace {

constexpr Duration kTick = std::chrono::seconds(1);
constexpr int64_t kRetrySeconds = 5;
// Batches that are checked and wait to run. Each has a thread and open files.
constexpr size_t kAheadMax = 8;

}  // namespace

LiveBatches::LiveBatches(net::Loop& loop, Books& books, const BatchApiConfig& config,
                         RowServer server, std::function<bool()> disk_full)
    : loop_(loop),
      books_(books),
      config_(config),
      server_(std::move(server)),
      disk_full_(std::move(disk_full)) {}

void LiveBatches::start() {
  books_.batches().for_each([this](const BatchRecord& batch) {
    if (!batch.ended()) {
      lives_[batch.number] = {.id = batch.id};
    }
  });
  tick();
}

void LiveBatches::add(const BatchRecord& batch) {
  lives_[batch.number] = {.id = batch.id};
  turn();
}

void LiveBatches::drain(std::function<void()> then) {
  draining_ = true;
  drained_ = std::move(then);
  for (auto& [number, live] : lives_) {
    if (live.stage == Stage::kRunning) {
      live.stage = Stage::kStopping;
      live.job->stop();
    }
  }
  turn();
}

BatchRecord LiveBatches::seen(const BatchRecord& batch) const {
  BatchRecord now = batch;
  const auto live = lives_.find(batch.number);
  if (live != lives_.end() && live->second.job != nullptr) {
    const RowCounts rows = live->second.job->counts();
    now.completed = std::max(now.completed, static_cast<int64_t>(rows.answered));
    now.failed = std::max(now.failed, static_cast<int64_t>(rows.failed));
    now.output_tokens = std::max(now.output_tokens, static_cast<int64_t>(rows.completion_tokens));
  }
  return now;
}

size_t LiveBatches::rows_in_flight() const {
  size_t rows = 0;
  for (const auto& [number, live] : lives_) {
    rows += live.job == nullptr ? 0 : live.job->in_flight();
  }
  return rows;
}

LiveBatches::Live* LiveBatches::find(const std::string& id) {
  const BatchRecord* const batch = books_.batches().find(id);
  const auto live = batch == nullptr ? lives_.end() : lives_.find(batch->number);
  return live == lives_.end() ? nullptr : &live->second;
}

void LiveBatches::tick() {
  turn();
  timer_ = loop_.call_at(loop_.now() + kTick, [this] { tick(); });
}

void LiveBatches::turn() {
  if (draining_) {
    const bool runs = std::ranges::any_of(lives_, [](const auto& each) {
      return each.second.stage == Stage::kRunning || each.second.stage == Stage::kStopping;
    });
    if (!runs && drained_) {
      loop_.post(std::exchange(drained_, nullptr));
    }
    return;
  }
  std::vector<LiveBatch> batches;
  for (const auto& [number, live] : lives_) {
    const BatchRecord& batch = *books_.batches().find(live.id);
    batches.push_back({.id = live.id,
                       .tenant = batch.tenant,
                       .stage = live.stage,
                       .all_ended = live.all_ended,
                       .cancelling = batch.cancelling_at != 0,
                       .expires_at = batch.expires_at,
                       .not_before = live.not_before});
  }
  const TurnLimits limits{.running_max = config_.running_max,
                          .alive_max = config_.running_max + kAheadMax,
                          .disk_full = disk_full_()};
  for (const BatchStep& step : next_steps(batches, limits, loop_.unix_seconds())) {
    Live& live = *find(step.id);
    const BatchRecord& batch = *books_.batches().find(step.id);
    switch (step.step) {
      case Step::kPrepare:
        prepare(live, batch);
        break;
      case Step::kRun:
        run(live);
        break;
      case Step::kStop:
        live.stage = Stage::kStopping;
        live.job->stop();
        break;
      case Step::kFinish:
        finish(live, batch, step.ending);
        break;
    }
  }
}

// ---- Preparing

std::unique_ptr<BatchJob> LiveBatches::job_of(const BatchRecord& batch) const {
  const FileRecord* const input = books_.files().find(batch.input_file_id);
  RowServer server = server_;
  server.header_lines = std::string(openai::header::kBatchTenant) + ": " + batch.tenant + "\r\n";
  return std::make_unique<BatchJob>(
      loop_, BatchJobSetting{.folder = books_.batch_path(batch.id),
                             .filename = input == nullptr ? "input" : input->filename,
                             .endpoint = batch.endpoint,
                             .rows_max = config_.rows_max,
                             .in_flight_max = config_.in_flight_max,
                             .server = std::move(server)});
}

void LiveBatches::prepare(Live& live, const BatchRecord& batch) {
  live.stage = Stage::kPreparing;
  live.job = job_of(batch);
  live.job->prepare(
      [this, id = live.id](const Result<BatchJob::Prepared>& done) { prepared(id, done); });
}

void LiveBatches::prepared(const std::string& id, const Result<BatchJob::Prepared>& prepared) {
  Live& live = *find(id);
  if (!prepared) {
    return failed(live, prepared.error().message);
  }
  BatchRecord batch = *books_.batches().find(id);
  const int64_t now = loop_.unix_seconds();
  if (!prepared->errors.empty()) {
    batch.state = BatchState::kFailed;
    batch.errors = prepared->errors;
    batch.ended_at = now;
    return end(batch, {});
  }
  live.stage = Stage::kPrepared;
  live.all_ended = prepared->rows.answered + prepared->rows.failed == prepared->rows.total;
  if (batch.in_progress_at == 0) {
    batch.in_progress_at = now;
    batch.total = static_cast<int64_t>(prepared->rows.total);
    batch.model = prepared->model;
    if (batch.state == BatchState::kValidating) {
      batch.state = BatchState::kInProgress;
    }
    books_.change({.files = {}, .batches = {batch}, .erased = {}}, {});
  }
  turn();
}

void LiveBatches::failed(Live& live, const std::string& why) {
  log::error(live.id + " cannot go on now, and is tried again: " + why);
  live.job.reset();
  live.stage = Stage::kWaiting;
  live.not_before = loop_.unix_seconds() + kRetrySeconds;
  turn();
}

// ---- Running

void LiveBatches::run(Live& live) {
  live.stage = Stage::kRunning;
  log::info(live.id + " runs");
  live.job->run([this, id = live.id](const BatchRun::End& end) { run_ended(id, end); });
}

void LiveBatches::run_ended(const std::string& id, const BatchRun::End& end) {
  Live& live = *find(id);
  if (end.broken) {
    // After an error nothing more may be written to its records.
    return failed(live, end.reason);
  }
  live.stage = Stage::kPrepared;
  live.all_ended = end.complete;
  turn();
}

// ---- The end

// The ids of the results are noted first, so that a crash finds the same ones again.
void LiveBatches::finish(Live& live, BatchRecord batch, Ending ending) {
  live.stage = Stage::kFinishing;
  if (batch.output_file_id.empty()) {
    batch.output_file_id = books_.new_id("file-");
    batch.error_file_id = books_.new_id("file-");
    batch.finalizing_at = loop_.unix_seconds();
    if (ending != Ending::kCancelled) {
      batch.state = BatchState::kFinalizing;
    }
  }
  books_.change({.files = {}, .batches = {batch}, .erased = {}}, [this, batch, ending] {
    find(batch.id)->job->finish(
        ending == Ending::kExpired ? BatchJob::Rest::kExpired : BatchJob::Rest::kLeft,
        {.output = books_.file_path(batch.output_file_id),
         .errors = books_.file_path(batch.error_file_id)},
        [this, id = batch.id, ending](const Result<BatchJob::Finished>& done) {
          finished(id, ending, done);
        });
  });
}

void LiveBatches::finished(const std::string& id, Ending ending,
                           const Result<BatchJob::Finished>& finished) {
  if (!finished) {
    return failed(*find(id), finished.error().message);
  }
  BatchRecord batch = *books_.batches().find(id);
  const int64_t now = loop_.unix_seconds();
  batch.state = ending == Ending::kCancelled ? BatchState::kCancelled
                : finished->expired          ? BatchState::kExpired
                                             : BatchState::kCompleted;
  batch.ended_at = now;
  batch.completed = static_cast<int64_t>(finished->rows.answered);
  batch.failed = static_cast<int64_t>(finished->rows.failed);
  batch.input_tokens = static_cast<int64_t>(finished->prompt_tokens);
  batch.output_tokens = static_cast<int64_t>(finished->rows.completion_tokens);
  std::vector<FileRecord> results;
  const auto keep = [&](std::string& file_id, uint64_t bytes, const char* name) {
    if (bytes == 0) {
      file_id.clear();
      return;
    }
    results.push_back({.number = books_.next_number(),
                       .id = file_id,
                       .tenant = batch.tenant,
                       .filename = batch.id + name,
                       .purpose = "batch_output",
                       .bytes = static_cast<int64_t>(bytes),
                       .created_at = now,
                       .expires_at = now + batch.output_lifetime});
  };
  keep(batch.output_file_id, finished->output_bytes, "_output.jsonl");
  keep(batch.error_file_id, finished->error_bytes, "_error.jsonl");
  end(batch, std::move(results));
}

void LiveBatches::end(const BatchRecord& batch, std::vector<FileRecord> results) {
  log::info(batch.id + " has ended: " + to_string(batch.state));
  lives_.erase(batch.number);  // Closes the files of its folder.
  books_.change({.files = std::move(results), .batches = {batch}, .erased = {}}, {});
  books_.run([id = batch.id](FileStore& store) -> Books::Then {
    store.remove_batch(id);
    return {};
  });
  turn();
}

}  // namespace pdjob::batch
