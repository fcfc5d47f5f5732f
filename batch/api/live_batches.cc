#include "batch/api/live_batches.h"

#include <algorithm>
#include <utility>

#include "batch/api/fair_windows.h"
#include "batch/api/input_check.h"
#include "common/log.h"
#include "openai/headers.h"

namespace pdjob::batch {
namespace {

constexpr Duration kTick = std::chrono::seconds(1);
constexpr uint64_t kTicksPerShare = 5;
// Batches that are checked and wait to run. Each has a thread and open files.
constexpr size_t kAheadMax = 8;

LifecycleConfig config_of(LifecycleConfig lifecycle, const BatchApiConfig& config) {
  lifecycle.running_max = config.running_max;
  lifecycle.alive_max = config.running_max + kAheadMax;
  return lifecycle;
}

std::string without(std::string text, const std::string& word, const std::string& instead) {
  for (size_t at = 0; !word.empty() && (at = text.find(word, at)) != std::string::npos;
       at += instead.size()) {
    text.replace(at, word.size(), instead);
  }
  return text;
}

}  // namespace

LiveBatches::LiveBatches(net::Loop& loop, Books& books, const BatchApiConfig& config,
                         RowServer server, std::function<DiskRoom()> disk_room,
                         const LifecycleConfig& lifecycle)
    : loop_(loop),
      books_(books),
      config_(config),
      server_(std::move(server)),
      disk_room_(std::move(disk_room)),
      lifecycle_(config_of(lifecycle, config)),
      runner_(loop, lifecycle_, *this) {}

void LiveBatches::start() {
  tick();
  std::vector<BatchRecord> alive;
  books_.batches().for_each([&](const BatchRecord& batch) {
    if (!batch.ended()) {
      alive.push_back(batch);
    }
  });
  for (const BatchRecord& batch : alive) {
    add(batch);
  }
}

void LiveBatches::see_world() {
  DiskRoom room = disk_room_();
  runner_.submit(WorldSeen{.unix_seconds = loop_.unix_seconds(),
                           .disk_full = room.full,
                           .full_tenants = std::move(room.full_tenants)});
}

// The core's clock stands at whole seconds, and must not be behind the time of the making.
void LiveBatches::add(const BatchRecord& batch) {
  see_world();
  runner_.submit(BatchAdded{batch});
}

void LiveBatches::tick() {
  see_world();
  if (++ticks_ % kTicksPerShare == 0) {
    share_windows();
  }
  timer_ = loop_.call_at(loop_.now() + kTick, [this] { tick(); });
}

void LiveBatches::share_windows() {
  std::vector<RunShare> runs;
  std::vector<BatchJob*> jobs;
  for (const auto& [id, job] : jobs_) {
    if (job->window() > 0) {
      runs.push_back({.tenant = books_.batches().find(id)->tenant,
                      .in_flight = job->in_flight(),
                      .window = job->window()});
      jobs.push_back(job.get());
    }
  }
  const std::vector<size_t> windows = fair_windows(runs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (windows[i] != runs[i].window) {
      jobs[i]->set_window(windows[i]);
    }
  }
}

void LiveBatches::cancel(const std::string& id, std::function<void()> stored) {
  on_stored_ = std::move(stored);
  runner_.submit(CancelAsked{id});
}

void LiveBatches::drain(std::function<void()> then) {
  drained_ = std::move(then);
  runner_.submit(DrainAsked{});
}

BatchRecord LiveBatches::seen(const BatchRecord& batch) const {
  BatchRecord now = batch;
  const auto job = jobs_.find(batch.id);
  if (!batch.ended() && (job == jobs_.end() || !job->second->progressed())) {
    now.errors = lifecycle_.trouble(batch.id);
  }
  if (job != jobs_.end()) {
    const RowCounts rows = job->second->counts();
    now.completed = std::max(now.completed, static_cast<int64_t>(rows.answered));
    now.failed = std::max(now.failed, static_cast<int64_t>(rows.failed));
    now.output_tokens = std::max(now.output_tokens, static_cast<int64_t>(rows.completion_tokens));
  }
  return now;
}

size_t LiveBatches::rows_in_flight() const {
  size_t rows = 0;
  for (const auto& [id, job] : jobs_) {
    rows += job->in_flight();
  }
  return rows;
}

// ---- Jobs

std::unique_ptr<BatchJob> LiveBatches::job_of(const BatchRecord& batch) {
  const FileRecord* const input = books_.files().find(batch.input_file_id);
  RowServer server = server_;
  server.header_lines = std::string(openai::header::kBatchTenant) + ": " + batch.tenant + "\r\n";
  return std::make_unique<BatchJob>(
      loop_, BatchJobSetting{.folder = books_.batch_path(batch.id),
                             .filename = input == nullptr ? "input" : input->filename,
                             .endpoint = batch.endpoint,
                             .rows_max = config_.rows_max,
                             .in_flight_max = config_.in_flight_max,
                             .server = std::move(server),
                             .totals = &totals_});
}

void LiveBatches::carry_out(const PrepareJob& effect) {
  auto& job = jobs_[effect.id] = job_of(*books_.batches().find(effect.id));
  job->prepare([this, id = effect.id](const Result<BatchJob::Prepared>& done) {
    if (!done) {
      return failed(id, "server_error", done.error().message);
    }
    const RowCounts& rows = done->rows;
    runner_.submit(JobPrepared{.id = id,
                               .errors = done->errors,
                               .model = done->model,
                               .total = static_cast<int64_t>(rows.total),
                               .all_ended = rows.answered + rows.failed == rows.total});
  });
}

void LiveBatches::carry_out(const RunJob& effect) {
  log::info(effect.id + " runs");
  jobs_.at(effect.id)->run([this, id = effect.id](const BatchRun::End& end) {
    // After an error nothing more may be written to its records.
    end.broken
        ? failed(id, end.hopeless ? "rows_refused" : "server_error", end.reason)
        : runner_.submit(RunEnded{
              .id = id, .all_ended = end.complete, .progressed = jobs_.at(id)->progressed()});
  });
}

void LiveBatches::carry_out(const YieldJob& effect) {
  log::info(effect.id + " starts no more rows for now");
  jobs_.at(effect.id)->yield();
}

void LiveBatches::carry_out(const StopJob& effect) { jobs_.at(effect.id)->stop(); }

void LiveBatches::carry_out(const UnloadJob& effect) { jobs_.erase(effect.id); }

// Clients see the reason, but not where the server's folder is.
void LiveBatches::failed(const std::string& id, const std::string& code, const std::string& why) {
  const std::string message =
      without(without(why, config_.dir + "/batches/", ""), config_.dir, "the server's folder");
  runner_.submit(JobFailed{.id = id,
                           .why = why,
                           .errors = errors_text({{.code = code, .message = message}}),
                           .progressed = jobs_.at(id)->progressed()});
}

void LiveBatches::carry_out(const NameResults& effect) {
  runner_.submit(ResultsNamed{.id = effect.id,
                              .output_file_id = books_.new_id("file-"),
                              .error_file_id = books_.new_id("file-")});
}

void LiveBatches::carry_out(const FinishJob& effect) {
  const BatchRecord& batch = *books_.batches().find(effect.id);
  jobs_.at(effect.id)->finish(
      effect.rest,
      {.output = books_.file_path(batch.output_file_id),
       .errors = books_.file_path(batch.error_file_id)},
      [this, id = effect.id](const Result<BatchJob::Finished>& done) {
        if (!done) {
          return failed(id, "server_error", done.error().message);
        }
        const RowCounts& rows = done->rows;
        runner_.submit(ResultsMade{.id = id,
                                   .answered = static_cast<int64_t>(rows.answered),
                                   .failed = static_cast<int64_t>(rows.failed),
                                   .input_tokens = static_cast<int64_t>(done->prompt_tokens),
                                   .output_tokens = static_cast<int64_t>(rows.completion_tokens),
                                   .output_bytes = static_cast<int64_t>(done->output_bytes),
                                   .error_bytes = static_cast<int64_t>(done->error_bytes),
                                   .expired = done->expired});
      });
}

void LiveBatches::carry_out(const DropJob& effect) {
  log::error(effect.id + " cannot go on now: " + effect.why);
  ++failures_;
  jobs_.erase(effect.id);
}

// ---- Records

void LiveBatches::carry_out(const StoreRecord& effect) {
  books_.change({.files = {}, .batches = {effect.batch}, .erased = {}},
                [this, id = effect.batch.id, change = effect.change,
                 then = std::exchange(on_stored_, nullptr)] {
                  if (then) {
                    then();
                  }
                  runner_.submit(RecordStored{.id = id, .change = change});
                });
}

void LiveBatches::carry_out(const EndBatch& effect) {
  const BatchRecord& batch = effect.batch;
  log::info(batch.id + " has ended: " + to_string(batch.state));
  ++ended_[batch.state];
  jobs_.erase(batch.id);  // Closes the files of its folder.
  std::vector<FileRecord> results = effect.results;
  for (FileRecord& file : results) {
    file.number = books_.next_number();
  }
  books_.change({.files = std::move(results), .batches = {batch}, .erased = {}}, {});
  books_.run([id = batch.id, unnamed = effect.unnamed](FileStore& store) -> Books::Then {
    std::ranges::for_each(unnamed, [&](const std::string& file) { store.remove(file); });
    store.remove_batch(id);
    return {};
  });
}

void LiveBatches::carry_out(const Drained& /*effect*/) {
  loop_.post(std::exchange(drained_, nullptr));
}

}  // namespace pdjob::batch
