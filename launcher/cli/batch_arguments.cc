#include "launcher/cli/batch_arguments.h"

#include <CLI/CLI.hpp>

#include "batch/batch_process.h"

namespace pdjob::launcher {
namespace {}  // namespace

BatchArguments::BatchArguments(CLI::App& app, const Places& places, int& exit_code)
    : places_(places), exit_code_(exit_code) {
  add_batch(app);
  add_job(app);
}

void BatchArguments::add_batch(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("batch", "Answer all rows of files, each exactly once, then end");
  command->require_subcommand(0, 1);
  command->add_option(
      "IN", flags_.inputs,
      "Files of rows (.jsonl, .csv, .tsv, .txt; also .gz, .zst), patterns, or - for "
      "standard input");
  add_flags(command);
  add_status(command);
  command->callback([this, command] {
    if (!command->get_subcommands().empty()) {
      return;
    }
    exit_code_ = run_batch_command(flags_, places_);
  });
}

void BatchArguments::add_flags(CLI::App* command) {
  auto* config = command
                     ->add_option("--config", flags_.config,
                                  "The job file; the job is started for the batch, as NAME-batch, "
                                  "unless --job or --url says where rows go. The flags below win "
                                  "over its section `batch`")
                     ->type_name("FILE");
  command
      ->add_option("--set", flags_.settings,
                   "A key of the job file, over what the file says: decode.workers=2; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->needs(config);
  auto* job =
      command
          ->add_option("--job", flags_.job,
                       "A job that runs here, by its name or its file: rows take what its other "
                       "requests leave")
          ->type_name("NAME|FILE");
  command->add_option("--url", flags_.url, "A running server, in place of a job of its own")
      ->type_name("URL")
      ->excludes(job);
  command
      ->add_option("--ca-file", flags_.ca_file,
                   "Certificates of the authorities that are trusted, for an https URL; default: "
                   "the system's")
      ->type_name("FILE");
  add_key(command, "--out", "out", "DIR", "The folder for results; the same one goes on");
  add_key(command, "--key-file", "key_file", "FILE",
          "Holds the API key that the server wants; default: that of the environment "
          "variable PDJOB_API_KEY");
  add_key(command, "--template", "template", "JSON|FILE",
          "The body of each request, with {{column}} in it: JSON, or a file that has it");
  add_key(command, "--endpoint", "endpoint", "PATH",
          "Where requests of a template go, /v1/chat/completions, /v1/completions or "
          "/v1/embeddings; "
          "default: what it looks like");
  add_key(command, "--id-column", "id_column", "COLUMN",
          "The column that has the custom_id; default: row-1, row-2, ...");
  add_key(command, "--format", "format", "FORMAT",
          "Of all files: openai, jsonl, csv, tsv or text; default: by their names");
  add_key(command, "--order", "order", "ORDER", "Of the results: input or completed");
  add_key(command, "--concurrency", "concurrency", "N",
          "Rows in flight at most; default: as many as help");
  add_key(command, "--attempts", "attempts", "N", "Tries of a row at which the server fails [5]");
  add_key(command, "--row-timeout", "row_timeout", "DURATION", "Of one try [10min; 1h with --job]");
  add_key(command, "--patience", "patience", "DURATION",
          "The batch ends if the server answers nothing for so long [10min; 1h with --job]");
  auto* restart =
      command->add_flag("--restart", flags_.restart, "Forget the results and begin anew");
  command->add_flag("--retry-failed", flags_.retry_failed, "Ask the failed rows again")
      ->excludes(restart);
}

void BatchArguments::add_key(CLI::App* command, const char* flag, const std::string& key,
                             const char* type, const char* doc) {
  command
      ->add_option_function<std::string>(
          flag,
          [this, flag, key](const std::string& value) {
            flags_.keys.push_back(
                {.text = key + "=" + value, .form = ConfigSetting::Form::kText, .flag = flag});
          },
          doc)
      ->type_name(type);
}

void BatchArguments::add_status(CLI::App* batch) {
  CLI::App* command = batch->add_subcommand("status", "Show how far a batch is");
  command->add_option("DIR", folder_, "Its folder")->required();
  command->callback([this] { exit_code_ = batch::show_batch_status(folder_); });
}

// A batch starts this command.
void BatchArguments::add_job(CLI::App& app) {
  CLI::App* command = app.add_subcommand("batch-job", "")->group("");
  command->add_option("config", job_file_)->required();
  command->add_option("--set", job_settings_)->allow_extra_args(false);
  command->add_option("--original", job_original_);
  command->callback([this] {
    Places places = places_;
    places.original = job_original_;
    exit_code_ = run_batch_job(job_file_, job_settings_, places);
  });
}

}  // namespace pdjob::launcher
