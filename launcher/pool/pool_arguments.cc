#include "launcher/pool/pool_arguments.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <poll.h>

#include "common/exit_code.h"
#include "common/json/json_fields.h"
#include "common/json/json_writer.h"
#include "common/parse_number.h"
#include "launcher/look/job_order.h"
#include "launcher/look/logs_command.h"
#include "launcher/look/plain_text.h"
#include "launcher/pool/job_shares.h"

namespace pdjob::launcher {

namespace {

constexpr int kPollMilliseconds = 200;

std::optional<std::pair<uint16_t, uint16_t>> ports_of(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = parse_number<uint16_t>(text.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : parse_number<uint16_t>(text.substr(dash + 1));
  return first && last && *first > 0 && *first <= *last ? std::optional(std::pair(*first, *last))
                                                        : std::nullopt;
}

struct Told {
  std::string state;
  std::string why;
};

Result<Told> read_told(const std::string& text) {
  JsonFields fields("the keeper's answer", text);
  Told told;
  fields.take("state", told.state);
  fields.take("why", told.why);
  PDJOB_TRY_STATUS(fields.status());
  return told;
}

std::string line_of(const std::string& job, const Told& told) {
  return "job " + job + " is " + told.state + (told.why.empty() ? "" : ": " + told.why);
}

}  // namespace

PoolArguments::PoolArguments(CLI::App& app, const Places& places, int& exit_code)
    : places_(places), exit_code_(exit_code) {
  add_keeper(app);
  add_submit(app);
  add_jobs(app);
  add_cancel(app);
  add_quota(app);
}

void PoolArguments::add_pool(CLI::App& command) {
  command.add_option("--pool", keeper_.pool, "Which pool")
      ->type_name("NAME")
      ->capture_default_str();
}

void PoolArguments::add_keeper(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "keeper", "Share the machines of a pool among several jobs, which wait in queues");
  command
      ->add_option("--listen", keeper_.listen,
                   "Where the agents of the pool's machines join (pdjob agent --join)")
      ->type_name("HOST:PORT")
      ->required();
  command
      ->add_option("--key-file", keeper_.key_file,
                   "Holds the key that keeper and agents share; `pdjob agent --new-key FILE` makes "
                   "one")
      ->type_name("FILE")
      ->required();
  add_pool(*command);
  command
      ->add_option("--host", keeper_.host,
                   "Which address of a machine its processes listen on: an interface or a network; "
                   "default: the one towards the keeper")
      ->type_name("HOST");
  command
      ->add_option("--ports", ports_,
                   "Where launchers listen for the agents of their jobs, on whichever machine: one "
                   "port for each job that runs")
      ->type_name("FIRST-LAST")
      ->capture_default_str();
  command
      ->add_option(
          "--orphan-timeout", orphan_timeout_s_,
          "Seconds that jobs go on without a keeper. A job whose launcher was on a machine "
          "that is lost starts elsewhere after that")
      ->check(CLI::Range(1, 7 * 86400))
      ->capture_default_str();
  command->add_flag("--standby", keeper_.standby,
                    "Wait until the keeper that runs has died, or stands still, and take over. It "
                    "needs the same state folder, and agents that know both addresses");
  command->callback([this] { exit_code_ = keep(); });
}

int PoolArguments::keep() {
  const auto ports = ports_of(ports_);
  if (!ports || !is_job_name(keeper_.pool)) {
    return code_of("keeper", Error{ErrorCode::kInvalidArgument,
                                   ports ? "--pool must be a-z, 0-9, - and _"
                                         : "--ports must be FIRST-LAST, such as 7800-7899"});
  }
  keeper_.first_port = ports->first;
  keeper_.last_port = ports->second;
  keeper_.orphan_timeout = std::chrono::seconds(orphan_timeout_s_);
  return run_keeper(keeper_, places_);
}

void PoolArguments::add_submit(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("submit", "Give a job to the keeper of a pool");
  command->add_option("FILE,--config", file_, "The job file")->type_name("FILE")->required();
  command
      ->add_option("--set", settings_, "A key of the job file, over what the file says; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--queue", queue_, "Which queue it waits in [default]")->type_name("NAME");
  command
      ->add_option("--priority", priority_,
                   "The higher one is first. A job that serves preempts batches of lower priority "
                   "[100; of a batch 0]")
      ->type_name("N");
  command->add_flag("--wait", wait_, "Until a batch has ended, or another job runs");
  add_pool(*command);
  command->callback([this] { exit_code_ = code_of("submit", submit()); });
}

void PoolArguments::add_jobs(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "jobs", "Show the jobs of a pool: what waits, runs and has ended, and why");
  command->add_option("JOB", job_, "Print the log of this job's launcher instead");
  command->add_flag("--json", json_, "As JSON");
  add_pool(*command);
  command->callback([this] {
    exit_code_ = job_.empty() ? code_of("jobs", show())
                              : show_log(keepers_dir(places_), keeper_.pool, "launcher-" + job_,
                                         LogsMode::kWhole);
  });
}

void PoolArguments::add_cancel(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "cancel", "End a job of a pool, or take it out of its queue; requests under way finish");
  command->add_option("JOB", job_, "Its name")->required();
  command->add_flag("--wait", wait_, "Until it has ended");
  add_pool(*command);
  command->callback([this] { exit_code_ = code_of("cancel", cancel()); });
}

void PoolArguments::add_quota(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "quota", "Bound what the jobs of a queue may hold together; without bounds: lift it");
  command->add_option("QUEUE", queue_, "Its name")->required();
  command->add_option("--cores", cores_, "At most so many [any number]");
  command->add_option("--gpus", gpus_, "At most so many [any number]");
  add_pool(*command);
  command->callback([this] { exit_code_ = code_of("quota", set_quota()); });
}

int PoolArguments::code_of(const char* command, const Status& done) const {
  if (done) {
    return kExitOk;
  }
  const std::string text = plain_text(done.error().message);
  std::fprintf(stderr, "pdjob %s: %s%s", command, text.c_str(), text.ends_with('\n') ? "" : "\n");
  return exit_code_of_order(done.error());
}

Result<std::string> PoolArguments::ask(const Order& order) const {
  const auto keeper = admin_of(keepers_dir(places_), keeper_.pool);
  if (!keeper) {
    return Error{keeper.error().code,
                 "pool " + keeper_.pool +
                     " has no keeper on this machine: `pdjob keeper` starts one (" +
                     keeper.error().message + ")"};
  }
  return order_job(*keeper, order);
}

Status PoolArguments::submit() const {
  Places of_pool = places_;
  of_pool.models_elsewhere = true;
  PDJOB_TRY(const JobConfig config,
            read_job_config(file_, of_pool, JobUse::kAsWritten, settings_of(settings_)));
  std::fputs(config.warnings.c_str(), stderr);
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  json.key("source").string(std::filesystem::absolute(file_).string());
  json.key("queue").string(queue_);
  json.key("priority").string(priority_);
  json.end_object();
  body += "\n" + config.text;
  PDJOB_TRY(const std::string answer,
            ask({.method = "POST", .target = "/submit", .body = std::move(body)}));
  PDJOB_TRY(const Told told, read_told(answer));
  if (wait_) {
    return wait_for(config.name, config.mode == Mode::kBatch);
  }
  std::printf("%s\n", plain_text(line_of(config.name, told)).c_str());
  return ok();
}

Status PoolArguments::wait_for(const std::string& job, bool until_ended) const {
  std::string said;
  while (true) {
    PDJOB_TRY(const std::string answer, ask({.method = "POST", .target = "/job", .body = job}));
    PDJOB_TRY(const Told told, read_told(answer));
    if (const std::string line = plain_text(line_of(job, told)); line != said) {
      std::fprintf(stderr, "%s\n", line.c_str());
      said = line;
    }
    if (told.state == "ended" || told.state == "warm") {
      const bool good = told.why == kBatchDone || told.why == "cancelled";
      return good ? ok() : Status(Error{ErrorCode::kUnavailable, line_of(job, told)});
    }
    if (told.state == "running" && !until_ended) {
      return ok();
    }
    poll(nullptr, 0, kPollMilliseconds);
  }
}

Status PoolArguments::show() const {
  PDJOB_TRY(const std::string text, ask({.target = json_ ? "/jobs" : "/jobs?as=text"}));
  std::fputs(plain_text(text).c_str(), stdout);
  return ok();
}

Status PoolArguments::cancel() const {
  PDJOB_TRY(const std::string answer, ask({.method = "POST", .target = "/cancel", .body = job_}));
  PDJOB_TRY(const Told told, read_told(answer));
  if (wait_) {
    return wait_for(job_, true);
  }
  std::printf("%s\n", plain_text(line_of(job_, told)).c_str());
  return ok();
}

Status PoolArguments::set_quota() const {
  const std::string body = queue_ + " " + std::to_string(cores_) + " " + std::to_string(gpus_);
  const auto done = ask({.method = "POST", .target = "/quota", .body = body});
  return done ? ok() : Status(done.error());
}

}  // namespace pdjob::launcher
