#include "launcher/cli/batch_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "batch/batch_process.h"
#include "batch/stages/stage_command.h"
#include "common/config/config_file.h"
#include "common/exit_code.h"
#include "launcher/cli/job_pool.h"
#include "launcher/launcher_process.h"
#include "launcher/look/status_command.h"
#include "launcher/look/status_page.h"
#include "openai/headers.h"

namespace pdjob::launcher {
namespace {

int refuse_batch(const Error& error) {
  const bool has_end = error.message.ends_with('\n');
  std::fprintf(stderr, "%s%s%s", has_end ? "" : "pdjob batch: ", error.message.c_str(),
               has_end ? "" : "\n");
  return kExitUsage;
}

// Lays the flags over the section of a job file.
Status add_flags(const BatchFlags& flags, batch::BatchConfig& config) {
  ConfigReader in = ConfigReader::parse("flags", "{}", flags.keys);
  batch::read(in, config);
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  if (!flags.inputs.empty()) {
    config.inputs = flags.inputs;
  }
  if (config.inputs.empty() || config.out.empty() ||
      (flags.config.empty() && flags.url.empty() && flags.job.empty())) {
    return Error{ErrorCode::kInvalidArgument,
                 "name input files, --out, and one of --config, --job and --url"};
  }
  return ok();
}

// The key without the end of its line.
Result<std::string> key_of(const batch::BatchConfig& config, const Places& places) {
  if (config.key_file.empty()) {
    return places.api_key;
  }
  PDJOB_TRY(std::string key, read_config_file(config.key_file));
  key.erase(key.find_last_not_of(" \r\n") + 1);
  if (key.empty() || key.find_first_of("\r\n") != std::string::npos) {
    return Error{ErrorCode::kInvalidArgument, config.key_file + " must hold one key in one line"};
  }
  return key;
}

Result<batch::BatchOptions> options_of(const batch::BatchConfig& config, const BatchFlags& flags) {
  batch::BatchOptions options{.folder = config.out,
                              .format = config.format,
                              .body_template = config.body_template,
                              .endpoint = config.endpoint,
                              .id_column = config.id_column,
                              .order = config.order,
                              .again = flags.restart        ? batch::Again::kRestart
                                       : flags.retry_failed ? batch::Again::kRetryFailed
                                                            : batch::Again::kGoOn,
                              .concurrency = config.concurrency,
                              .attempts = config.attempts,
                              .row_timeout = config.row_timeout,
                              .patience = config.patience};
  PDJOB_TRY(options.inputs, batch::files_of(config.inputs));
  if (!config.body_template.empty() && !batch::is_template_text(config.body_template)) {
    PDJOB_TRY(options.body_template, read_config_file(config.body_template));
  }
  return options;
}

// Where the routers of a running job answer.
Result<std::string> url_of_job(const std::string& job, const Places& places) {
  JobPlace place{.name = job, .state_dir = default_state_dir(places)};
  if (!is_job_name(job)) {
    PDJOB_TRY(place, read_job_place(job, places));
  }
  PDJOB_TRY(const std::string text, ask_launcher(place.state_dir, place.name, "/status"));
  PDJOB_TRY(StatusPage page, read_status(text));
  if (page.url.empty()) {
    return Error{ErrorCode::kUnavailable, "the job '" + job + "' has no router"};
  }
  return std::move(page.url);
}

// Others may leave nothing for long. Flags say otherwise; a file's keys are for its own job.
void wait_as_a_guest(const BatchFlags& flags, batch::BatchOptions& options) {
  constexpr Duration kPatience = std::chrono::hours(1);
  const auto said = [&flags](std::string_view key) {
    return std::ranges::any_of(
        flags.keys, [key](const ConfigSetting& each) { return each.text.starts_with(key); });
  };
  options.row_timeout =
      said("row_timeout=") ? options.row_timeout : std::max(options.row_timeout, kPatience);
  options.patience = said("patience=") ? options.patience : std::max(options.patience, kPatience);
}

// Rows that are somebody else's guests take what the others leave.
std::string background_line() { return std::string(openai::header::kBackground) + ": 1\r\n"; }

size_t sequences_of(const JobConfig& config) {
  size_t sequences = 0;
  for (const ModelConfig& model : config.models) {
    sequences += size_t{model.decode_workers} * model.decode_engine.sequences;
  }
  return sequences;
}

// Rows in stages leave the model room for as many others.
size_t processes_of(const batch::StagesConfig& stages) {
  size_t processes = 0;
  for (const batch::StageConfig* stage : stages.all()) {
    processes += stage->workers;
  }
  return processes;
}

Result<int> run(const BatchFlags& flags, const Places& places) {
  batch::BatchConfig config;
  std::optional<JobConfig> job;
  if (!flags.config.empty()) {
    PDJOB_TRY(
        job, read_job_config(flags.config, places, JobUse::kForBatch, settings_of(flags.settings)));
    std::fputs(job->warnings.c_str(), stderr);
    config = job->batch;
  }
  PDJOB_TRY_STATUS(add_flags(flags, config));
  PDJOB_TRY(batch::BatchOptions options, options_of(config, flags));
  PDJOB_TRY(const std::string key, key_of(config, places));
  if (job) {
    options.stages = config.stages;
    options.stages_folder = batch::stages_folder(job->source);
  }
  if (job && flags.job.empty() && flags.url.empty()) {
    options.job = job->text_of_job;
    options.first_window = sequences_of(*job) + processes_of(config.stages);
    return batch::run_batch(options, [&](net::EventLoop& loop) {
      return std::make_unique<JobPool>(loop, flags.config, places.original, flags.settings, key,
                                       options.row_timeout);
    });
  }
  std::string url = flags.url;
  if (!flags.job.empty()) {
    PDJOB_TRY(url, url_of_job(flags.job, places));
    wait_as_a_guest(flags, options);
  }
  PDJOB_TRY(batch::RowServer server, batch::parse_row_server(url));
  server.header_lines = background_line();
  server.key = key;
  server.ca_file = flags.ca_file;
  server.row_timeout = options.row_timeout;
  return batch::run_batch(options, [&](net::EventLoop& loop) {
    return std::make_unique<batch::RunningServer>(loop, server);
  });
}

}  // namespace

int run_batch_command(const BatchFlags& flags, const Places& places) {
  const Result<int> code = run(flags, places);
  return code ? *code : refuse_batch(code.error());
}

int run_batch_job(const std::string& config_path, const std::vector<std::string>& settings,
                  const Places& places) {
  Result<JobConfig> config =
      read_job_config(config_path, places, JobUse::kForBatch, settings_of(settings));
  return config ? run_job(batch_job(*std::move(config)), places) : refuse_batch(config.error());
}

}  // namespace pdjob::launcher
