#include "batch/batch_process.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "batch/batch_folder.h"
#include "batch/batch_run.h"
#include "batch/input_scan.h"
#include "batch/progress.h"
#include "batch/report/report.h"
#include "batch/staged_row_client.h"
#include "batch/stages/stage_command.h"
#include "common/exit_code.h"
#include "common/hex.h"
#include "common/json/json_fields.h"
#include "common/log.h"
#include "common/os/read_text.h"
#include "common/os/real_clock.h"
#include "common/parse_number.h"
#include "common/random.h"
#include "net/loop/signals.h"

namespace pdjob::batch {
namespace {

// Shows progress to a person: on a terminal one line that changes, elsewhere a line now and then.
class Screen {
 public:
  void show(const Progress& progress, Instant now) {
    if (progress.trouble != trouble_) {
      trouble_ = progress.trouble;
      next_line_ = {};  // It is told at once.
    }
    if (!is_terminal_ && now < next_line_) {
      return;
    }
    next_line_ = now + std::chrono::seconds(10);
    const std::string text =
        progress_text(progress, is_terminal_ ? ProgressForm::kBar : ProgressForm::kLine);
    if (is_terminal_) {
      std::fprintf(stderr, "\r\x1b[K%s", text.substr(0, columns()).c_str());
      line_open_ = true;
    } else {
      std::fprintf(stderr, "%s\n", text.c_str());
    }
  }
  void say(const std::string& text) {
    std::fprintf(stderr, "%s%s\n", line_open_ ? "\r\x1b[K" : "", text.c_str());
    line_open_ = false;
  }

 private:
  static size_t columns() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1
               ? static_cast<size_t>(size.ws_col - 1)
               : 79;
  }

  const bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  bool line_open_ = false;
  std::string trouble_;
  Instant next_line_{};
};

struct Prepared {
  std::unique_ptr<LedgerFile> ledger;
  std::vector<InputFile> files;
  RowCounts counts;
  std::string nonce;
  std::string stage_logs;  // A folder; empty without stages.
};

Result<Prepared> prepare(const BatchOptions& options, const BatchFolder& folder,
                         const RowReader& reader, Screen& screen) {
  Prepared made;
  if (!options.stages.empty()) {
    PDJOB_TRY(made.stage_logs, folder.make_stage_logs());
  }
  PDJOB_TRY(made.ledger, LedgerFile::open(folder.ledger()));
  PDJOB_TRY_STATUS(scan_input(options, folder, *made.ledger, reader, [&](uint64_t rows) {
    screen.say("reading the input: " + std::to_string(rows) + " rows so far");
  }));
  if (options.again == Again::kRetryFailed) {
    PDJOB_TRY(const uint64_t failed, made.ledger->forget_failed());
    screen.say("trying " + std::to_string(failed) + " failed rows again");
  }
  PDJOB_TRY(made.nonce, made.ledger->fact("nonce"));
  if (made.nonce.empty()) {
    append_hex(made.nonce, entropy(), 8);
    PDJOB_TRY_STATUS(made.ledger->set_fact("nonce", made.nonce));
  }
  PDJOB_TRY(made.files, made.ledger->files());
  PDJOB_TRY(made.counts, made.ledger->counts());
  return made;
}

// One run, from the pool's start to its end.
class BatchProcess {
 public:
  BatchProcess(const BatchOptions& options, const BatchFolder& folder, const RowReader& reader,
               Prepared& prepared, Records& records, Screen& screen, const MakePool& make_pool)
      : options_(options),
        folder_(folder),
        reader_(reader),
        prepared_(prepared),
        records_(records),
        screen_(screen),
        pool_(make_pool(loop_)),
        signals_(loop_, std::array{SIGTERM, SIGINT, SIGHUP}, [this](int /*signal*/) { stop(); }) {
    progress_.rows = prepared.counts;
  }

  BatchRun::End run() {
    look();
    pool_->start([this](const Result<RowServer>& server) { pool_ready(server); },
                 [this](const std::string& reason) { pool_died(reason); });
    loop_.run();
    return end_;
  }
  const Progress& progress() const { return progress_; }

 private:
  void pool_ready(const Result<RowServer>& server) {
    if (!server) {
      ended({.broken = true, .reason = server.error().message});
      return;
    }
    client_ = make_row_client(loop_, *server);
    if (!options_.stages.empty()) {
      auto staged = std::make_unique<StagedRowClient>(
          loop_, std::move(client_), options_.stages,
          StagePlace{.folder = options_.stages_folder, .logs = prepared_.stage_logs},
          [this](const std::string& text) { screen_.say(text); });
      staged_ = staged.get();
      client_ = std::move(staged);
    }
    run_ = std::make_unique<BatchRun>(loop_,
                                      BatchRun::Parts{.ledger = *prepared_.ledger,
                                                      .records = records_,
                                                      .client = *client_,
                                                      .reader = reader_},
                                      options_, prepared_.files, prepared_.counts, prepared_.nonce);
    run_->start([this](const BatchRun::End& end) { ended(end); });
  }

  void pool_died(const std::string& reason) {
    pool_died_ = true;
    run_ == nullptr ? ended({.broken = true, .reason = reason}) : run_->stop(reason);
  }

  void stop() {
    if (stopping_) {
      loop_.stop();  // Asked twice.
      return;
    }
    stopping_ = true;
    screen_.say("stopping: the same command goes on later");
    run_ == nullptr ? ended({}) : run_->stop("");
  }

  void ended(const BatchRun::End& end) {
    if (has_ended_) {
      return;
    }
    has_ended_ = true;
    end_ = end;
    look();
    run_.reset();
    if (staged_ != nullptr) {
      staged_->finish([this] { end_pool(); });
    } else {
      end_pool();
    }
  }

  void end_pool() {
    staged_ = nullptr;
    client_.reset();  // Its calls would report to the run.
    pool_died_ ? loop_.stop() : pool_->stop([this] { loop_.stop(); });
  }

  void look() {
    if (run_ != nullptr) {
      const double rows = progress_.rows_per_second;
      const double tokens = progress_.tokens_per_second;
      progress_ = run_->progress();
      progress_.rows_per_second = rows;
      progress_.tokens_per_second = tokens;
      progress_.stages = staged_ == nullptr ? std::vector<StageProgress>() : staged_->progress();
      rates_.look(progress_, loop_.now());
      screen_.show(progress_, loop_.now());
    }
    const Status written = folder_.write(
        "status.json",
        status_json(progress_, run_ == nullptr ? "starting" : "running", "", loop_.unix_seconds()));
    if (!written) {
      log::warn(written.error().message);
    }
    if (!has_ended_) {
      loop_.call_at(loop_.now() + std::chrono::seconds(1), [this] { look(); });
    }
  }

  const BatchOptions& options_;
  const BatchFolder& folder_;
  const RowReader& reader_;
  Prepared& prepared_;
  Records& records_;
  Screen& screen_;
  net::EventLoop loop_;
  Progress progress_;
  Rates rates_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<RowClient> client_;
  StagedRowClient* staged_ = nullptr;  // client_, if the batch has stages.
  std::unique_ptr<BatchRun> run_;
  net::StopSignals signals_;
  BatchRun::End end_;
  bool stopping_ = false;
  bool pool_died_ = false;
  bool has_ended_ = false;
};

int refuse(const Error& error) {
  std::fprintf(stderr, "pdjob batch: %s\n", error.message.c_str());
  return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kUnsupported
             ? kExitUsage
             : kExitFailed;
}

// The counts of all lives of the batch that ended in good order.
Result<std::map<std::string, uint64_t>> add_stage_restarts(LedgerFile& ledger,
                                                           const BatchOptions& options,
                                                           const Progress& progress) {
  std::map<std::string, uint64_t> restarts;
  for (const StageConfig* stage : options.stages.all()) {
    PDJOB_TRY(const std::string before, ledger.fact("restarts of " + stage->name));
    restarts[stage->name] = parse_number<uint64_t>(before).value_or(0);
  }
  for (const StageProgress& stage : progress.stages) {
    uint64_t& count = restarts[stage.name];
    count += stage.restarts;
    PDJOB_TRY_STATUS(ledger.set_fact("restarts of " + stage.name, std::to_string(count)));
  }
  return restarts;
}

Status write_results(const BatchOptions& options, const BatchFolder& folder, LedgerFile& ledger,
                     Records& records, const std::map<std::string, uint64_t>& restarts) {
  PDJOB_TRY_STATUS(records.merge(options.order));
  PDJOB_TRY(ReportFacts facts, read_facts(ledger.database()));
  facts.stage_restarts = restarts;
  PDJOB_TRY_STATUS(folder.write("report.md", report_markdown(facts)));
  return folder.write("report.html", report_html(facts));
}

int exit_code_of(const BatchRun::End& end, const RowCounts& counts) {
  if (end.broken) {
    return kExitFailed;
  }
  if (!end.complete) {
    return kExitInterrupted;
  }
  return counts.failed > 0 ? kExitRowsFailed : kExitOk;
}

std::string last_words(const BatchRun::End& end, const RowCounts& rows, const std::string& folder) {
  if (!end.complete) {
    return (end.reason.empty() ? "stopped"
                               : "pdjob batch: " + end.reason +
                                     (end.refuses_key ? ": name one by --key-file" : "")) +
           "\n" + std::to_string(rows.answered + rows.failed) + " of " +
           std::to_string(rows.total) + " rows have ended; the same command goes on";
  }
  std::string text = std::to_string(rows.answered) + " of " + std::to_string(rows.total) +
                     " rows were answered: " + folder + "/output.jsonl";
  if (rows.failed > 0) {
    text += "\n" + std::to_string(rows.failed) + " rows failed: " + folder + "/errors.jsonl";
  }
  return text + "\nreport: " + folder + "/report.html";
}

Result<int> run_in_folder(const BatchOptions& options, const MakePool& make_pool) {
  PDJOB_TRY(const RowReader reader, row_reader_of(options));
  PDJOB_TRY_STATUS(check_stages(options.stages, options.stages_folder));
  PDJOB_TRY(const BatchFolder folder, BatchFolder::claim(options.folder));
  Screen screen;
  PDJOB_TRY(Prepared prepared, prepare(options, folder, reader, screen));
  const auto disk = real_disk();
  PDJOB_TRY(const auto records, Records::open(*disk, *prepared.ledger, folder.path()));
  BatchRun::End end{.complete = true};
  Progress progress{.rows = prepared.counts};
  if (prepared.counts.answered + prepared.counts.failed < prepared.counts.total) {
    net::block_signals();
    BatchProcess process(options, folder, reader, prepared, *records, screen, make_pool);
    end = process.run();
    progress = process.progress();
  }
  PDJOB_TRY(progress.rows, prepared.ledger->counts());
  PDJOB_TRY(const auto restarts, add_stage_restarts(*prepared.ledger, options, progress));
  if (end.complete) {
    PDJOB_TRY_STATUS(write_results(options, folder, *prepared.ledger, *records, restarts));
  }
  PDJOB_TRY_STATUS(folder.write("status.json", status_json(progress,
                                                           end.complete ? "completed"
                                                           : end.broken ? "failed"
                                                                        : "stopped",
                                                           end.reason, unix_seconds())));
  screen.say(last_words(end, progress.rows, folder.path()));
  return exit_code_of(end, progress.rows);
}

}  // namespace

int run_batch(const BatchOptions& options, const MakePool& make_pool) {
  log::start("batch", log::Level::kWarn);
  const Result<int> code = run_in_folder(options, make_pool);
  return code ? *code : refuse(code.error());
}

int show_batch_status(const std::string& folder) {
  const std::string text = read_text(folder + "/status.json");
  if (text.empty()) {
    return refuse({ErrorCode::kInvalidArgument, folder + " has no batch in it"});
  }
  JsonFields fields(folder + "/status.json", text);
  std::string state;
  std::string reason;
  std::string stages;
  int64_t total = 0, answered = 0, failed = 0, in_flight = 0;
  fields.take("state", state);
  fields.take("reason", reason);
  fields.take("rows_total", total);
  fields.take("rows_answered", answered);
  fields.take("rows_failed", failed);
  fields.take("rows_in_flight", in_flight);
  fields.take("stages", stages);
  if (const Status read = fields.status(); !read) {
    return refuse(read.error());
  }
  if ((state == "running" || state == "starting") && !BatchFolder::is_claimed(folder)) {
    state = "interrupted: the same command goes on";
  }
  std::printf("%s\nrows      %lld\nanswered  %lld\nfailed    %lld\nin flight %lld\n", state.c_str(),
              static_cast<long long>(total), static_cast<long long>(answered),
              static_cast<long long>(failed), static_cast<long long>(in_flight));
  std::fputs(stages.c_str(), stdout);
  std::fputs(reason.empty() ? "" : (reason + "\n").c_str(), stdout);
  return kExitOk;
}

}  // namespace pdjob::batch
