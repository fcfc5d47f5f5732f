#include "batch/api/batch_job.h"

#include <filesystem>
#include <limits>
#include <utility>

#include "batch/answer_record.h"
#include "batch/api/input_check.h"
#include "batch/input_scan.h"
#include "common/hex.h"
#include "common/os/real_clock.h"
#include "common/random.h"

namespace pdjob::batch {
namespace {

constexpr const char* kInput = "/input.jsonl";
constexpr const char* kExpired = "expired";
constexpr size_t kRowsAtOnce = 1000;

BatchOptions options_of(const BatchJobSetting& setting) {
  return {.inputs = {setting.folder + kInput},
          .folder = setting.folder,
          .format = RowFormat::kOpenAi,
          .concurrency = setting.in_flight_max,
          // The batch's own window ends it, not the patience of the ledger.
          .losses = std::numeric_limits<uint32_t>::max(),
          .row_timeout = setting.server.row_timeout,
          .patience = std::chrono::hours(24 * 365),
          .job = "batch_api"};
}

Result<uint64_t> size_of(const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  return error ? Result<uint64_t>(Error{ErrorCode::kUnavailable, path + ": " + error.message()})
               : Result(size);
}

std::vector<InputError> duplicate_errors(
    const std::vector<std::pair<uint64_t, uint64_t>>& duplicates) {
  std::vector<InputError> errors;
  for (const auto& [line, first] : duplicates) {
    errors.push_back({.code = "duplicate_custom_id",
                      .message = "its custom_id is that of line " + std::to_string(first),
                      .line = line});
  }
  return errors;
}

}  // namespace

BatchJob::BatchJob(net::Loop& loop, BatchJobSetting setting)
    : loop_(loop),
      setting_(std::move(setting)),
      options_(options_of(setting_)),
      reader_(RowRules{}),
      helper_(loop.make_helper("batch-files")) {}

BatchJob::~BatchJob() { run_.reset(); }

void BatchJob::prepare(std::function<void(Result<Prepared>)> then) {
  helper_->run([this, then = std::move(then), alive = std::weak_ptr(alive_)] {
    auto prepared = prepare_now();
    loop_.post([this, then, prepared = std::move(prepared), alive] {
      if (!alive.expired()) {
        prepared_ = counts_ = prepared ? prepared->rows : RowCounts{};
        then(prepared);
      }
    });
  });
}

Result<BatchJob::Prepared> BatchJob::prepare_now() {
  Prepared prepared;
  PDJOB_TRY(folder_, BatchFolder::claim(setting_.folder));
  PDJOB_TRY(ledger_, LedgerFile::open(folder_->ledger()));
  PDJOB_TRY(const bool scanned, ledger_->scanned());
  if (!scanned) {
    PDJOB_TRY(const InputFacts facts,
              check_input(options_.inputs.front(),
                          {.endpoint = setting_.endpoint, .rows_max = setting_.rows_max}));
    prepared.model = facts.model;
    prepared.errors = errors_text(facts.errors);
    prepared.rows.total = facts.rows;
    if (!facts.errors.empty()) {
      return prepared;
    }
  }
  PDJOB_TRY_STATUS(scan_input(options_, *folder_, *ledger_, reader_, [](uint64_t /*rows*/) {}));
  PDJOB_TRY(const auto duplicates, ledger_->duplicates(kInputErrorsMax));
  prepared.errors = errors_text(duplicate_errors(duplicates));
  PDJOB_TRY(nonce_, ledger_->fact("nonce"));
  if (nonce_.empty()) {
    append_hex(nonce_, entropy(), 16);
    PDJOB_TRY_STATUS(ledger_->set_fact("nonce", nonce_));
  }
  PDJOB_TRY(files_, ledger_->files());
  for (InputFile& file : files_) {
    file.name = setting_.filename;  // Clients see it in errors.
    file.path = options_.inputs.front();
  }
  PDJOB_TRY(records_, Records::open(*disk_, *ledger_, folder_->path()));
  PDJOB_TRY(prepared.rows, ledger_->counts());
  return prepared;
}

void BatchJob::run(std::function<void(const BatchRun::End&)> ended) {
  const RowServer& server = setting_.server;
  client_ = server.make_client ? server.make_client(server)
                               : std::make_unique<HttpRowClient>(loop_, server);
  run_ = std::make_unique<BatchRun>(loop_,
                                    BatchRun::Parts{.ledger = *ledger_,
                                                    .records = *records_,
                                                    .client = *client_,
                                                    .reader = reader_,
                                                    .totals = setting_.totals},
                                    options_, files_, counts_, nonce_);
  run_->start(
      [this, ended = std::move(ended), alive = std::weak_ptr(alive_)](const BatchRun::End& end) {
        if (alive.expired()) {
          return;
        }
        counts_ = run_->progress().rows;
        run_.reset();
        client_.reset();  // Its calls would report to the run.
        ended(end);
      });
}

bool BatchJob::progressed() const {
  const RowCounts now = counts();
  return now.answered + now.failed > prepared_.answered + prepared_.failed;
}

void BatchJob::finish(Rest rest, Target target, std::function<void(Result<Finished>)> then) {
  helper_->run([this, rest, target = std::move(target), then = std::move(then),
                alive = std::weak_ptr(alive_)] {
    auto finished = finish_now(rest, target);
    loop_.post([then, finished = std::move(finished), alive] {
      if (!alive.expired()) {
        then(finished);
      }
    });
  });
}

Result<BatchJob::Finished> BatchJob::finish_now(Rest rest, const Target& target) {
  Finished finished;
  if (rest == Rest::kExpired) {
    PDJOB_TRY_STATUS(expire_rows());
  }
  PDJOB_TRY(const std::string expired, ledger_->fact(kExpired));
  finished.expired = !expired.empty();
  PDJOB_TRY(finished.rows, ledger_->counts());
  PDJOB_TRY(const int64_t prompt_tokens,
            ledger_->database().number("SELECT coalesce(sum(prompt_tokens), 0) FROM answers"));
  finished.prompt_tokens = static_cast<uint64_t>(prompt_tokens);
  PDJOB_TRY_STATUS(records_->merge(LedgerFile::Order::kInput));
  const std::string output = folder_->path() + "/output.jsonl";
  const std::string errors = folder_->path() + "/errors.jsonl";
  PDJOB_TRY(finished.output_bytes, size_of(output));
  PDJOB_TRY(finished.error_bytes, size_of(errors));
  // The parts are still there, so a crash in between changes nothing.
  if (finished.output_bytes > 0) {
    PDJOB_TRY_STATUS(disk_->rename(output, target.output));
  }
  if (finished.error_bytes > 0) {
    PDJOB_TRY_STATUS(disk_->rename(errors, target.errors));
  }
  return finished;
}

Status BatchJob::expire_rows() {
  RowFiles row_files({options_.inputs.front()});
  while (true) {
    PDJOB_TRY(const std::vector<InputRow> rows, ledger_->pending(RowId{}, kRowsAtOnce));
    if (rows.empty()) {
      return ok();
    }
    PDJOB_TRY_STATUS(ledger_->set_fact(kExpired, "1"));
    std::vector<Record> records;
    for (const InputRow& row : rows) {
      std::string text;
      PDJOB_TRY_STATUS(row_files.read(row.file, row.offset, row.length, row.digest, text));
      const auto glance = reader_.glance(
          text, {.format = RowFormat::kOpenAi, .number = row.id.value, .header = {}});
      const RowName name{.record_id = "batch_req_" + nonce_ + "_" + std::to_string(row.id.value),
                         .custom_id = glance.custom_id.value_or(""),
                         .place = setting_.filename + ":" + std::to_string(row.line)};
      const RowResult result{.cause = "batch_expired",
                             .message =
                                 "this request could not be executed before the completion "
                                 "window expired"};
      records.push_back({.id = row.id,
                         .kind = RecordKind::kError,
                         .line = error_line(name, result),
                         .stats = {.ended_at = unix_seconds(), .cause = result.cause}});
    }
    PDJOB_TRY_STATUS(records_->note(records));
  }
}

}  // namespace pdjob::batch
