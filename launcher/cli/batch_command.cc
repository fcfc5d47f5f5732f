#include "launcher/cli/batch_command.h"

#include <cstdio>
#include <utility>

#include <glob.h>

#include "batch/batch_process.h"
#include "common/config/config_file.h"
#include "common/config/config_text.h"
#include "common/exit_code.h"
#include "launcher/cli/job_pool.h"
#include "launcher/launcher_process.h"

namespace pdjob::launcher {
namespace {

int refuse(const Error& error) {
  const bool has_end = error.message.ends_with('\n');
  std::fprintf(stderr, "%s%s%s", has_end ? "" : "pdjob batch: ", error.message.c_str(),
               has_end ? "" : "\n");
  return kExitUsage;
}

// A pattern's files come in the order of their names.
Result<std::vector<std::string>> expanded(const std::vector<std::string>& words) {
  std::vector<std::string> files;
  for (const std::string& word : words) {
    glob_t found{};
    if (word != "-" && word.find_first_of("*?[") != std::string::npos) {
      const int result = glob(word.c_str(), 0, nullptr, &found);
      files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
      globfree(&found);
      if (result != 0) {
        return Error{ErrorCode::kInvalidArgument, "no file is called " + word};
      }
    } else {
      files.push_back(word);
    }
  }
  return files;
}

Result<Duration> duration_of(const char* flag, const std::string& word) {
  const auto duration = parse_duration(word);
  return duration && *duration > Duration::zero()
             ? Result(*duration)
             : Error{ErrorCode::kInvalidArgument,
                     std::string(flag) + " must be a duration such as 30s or 10min, got " + word};
}

Result<std::string> template_of(const std::string& word) {
  return word.empty() || word.starts_with('{') ? Result(word) : read_config_file(word);
}

// The key without the end of its line.
Result<std::string> key_of(const std::string& file) {
  if (file.empty()) {
    return std::string();
  }
  PDJOB_TRY(std::string key, read_config_file(file));
  key.erase(key.find_last_not_of(" \r\n") + 1);
  if (key.empty() || key.find_first_of("\r\n") != std::string::npos) {
    return Error{ErrorCode::kInvalidArgument, file + " must hold one key in one line"};
  }
  return key;
}

Result<batch::BatchOptions> options_of(const BatchFlags& flags) {
  batch::BatchOptions options{.folder = flags.out,
                              .endpoint = flags.endpoint,
                              .id_column = flags.id_column,
                              .concurrency = flags.concurrency,
                              .attempts = flags.attempts};
  PDJOB_TRY(options.inputs, expanded(flags.inputs));
  PDJOB_TRY(options.body_template, template_of(flags.body_template));
  PDJOB_TRY(options.row_timeout, duration_of("--row-timeout", flags.row_timeout));
  PDJOB_TRY(options.patience, duration_of("--patience", flags.patience));
  options.order = flags.order == "completed" ? batch::LedgerFile::Order::kCompleted
                                             : batch::LedgerFile::Order::kInput;
  options.again = flags.restart        ? batch::Again::kRestart
                  : flags.retry_failed ? batch::Again::kRetryFailed
                                       : batch::Again::kGoOn;
  options.format = batch::parse_row_format(flags.format);
  return options;
}

size_t sequences_of(const JobConfig& config) {
  size_t sequences = 0;
  for (const ModelConfig& model : config.models) {
    sequences += size_t{model.decode_workers} * model.decode_engine.sequences;
  }
  return sequences;
}

}  // namespace

int run_batch_command(const BatchFlags& flags, const Places& places) {
  Result<batch::BatchOptions> options = options_of(flags);
  const Result<std::string> key = key_of(flags.key_file);
  if (!options || !key) {
    return refuse(options ? key.error() : options.error());
  }
  if (!flags.url.empty()) {
    Result<batch::RowServer> server = batch::parse_row_server(flags.url);
    if (!server) {
      return refuse(server.error());
    }
    server->key = *key;
    server->row_timeout = options->row_timeout;
    return batch::run_batch(*options, [server = *server](net::EventLoop& loop) {
      return std::make_unique<batch::RunningServer>(loop, server);
    });
  }
  Result<JobConfig> config = read_job_config(flags.config, places);
  config = config ? batch_job(*std::move(config)) : std::move(config);
  if (!config) {
    return refuse(config.error());
  }
  std::fputs(config->warnings.c_str(), stderr);
  options->job = config->text;
  options->first_window = sequences_of(*config);
  return batch::run_batch(*options, [&](net::EventLoop& loop) {
    return std::make_unique<JobPool>(loop, flags.config, *key, options->row_timeout);
  });
}

int run_batch_job(const std::string& config_path, const Places& places) {
  Result<JobConfig> config = read_job_config(config_path, places);
  config = config ? batch_job(*std::move(config)) : std::move(config);
  return config ? run_job(*config) : refuse(config.error());
}

}  // namespace pdjob::launcher
