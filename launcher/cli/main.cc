// The command line of pdjob: jobs that run or are to run. Other commands: *_arguments.h.
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <malloc.h>

#include "common/config/config_text.h"
#include "common/exit_code.h"
#include "launcher/cli/batch_arguments.h"
#include "launcher/cli/batch_command.h"
#include "launcher/cli/completion_arguments.h"
#include "launcher/cli/convert_command.h"
#include "launcher/cli/process_arguments.h"
#include "launcher/cli/reference.h"
#include "launcher/cli/scale_command.h"
#include "launcher/cli/stop_command.h"
#include "launcher/job_folder.h"
#include "launcher/launcher_process.h"
#include "launcher/look/links_command.h"
#include "launcher/look/logs_command.h"
#include "launcher/look/status_command.h"
#include "launcher/look/top_command.h"
#include "launcher/plan/job_config.h"
#include "openai/headers.h"

namespace pdjob::launcher {

namespace {

constexpr const char* kExamples = R"(Examples:
  pdjob --config configs/quickstart.yaml        start a job; Ctrl-C drains and stops it
  pdjob plan --config configs/local_2p2d.yaml   show what would run, and start nothing
  pdjob ps                                      the jobs that run here
  pdjob status --job quickstart                 what runs, and how it is doing
  pdjob top                                     the same, live: load, latencies, rates
  pdjob links --config job.yaml --watch         the KV links between its workers, live
  pdjob logs -f decode-0                        what a process writes, on whichever machine
  pdjob stop                                    ends the job that runs here
  pdjob batch rows.jsonl --out results --config job.yaml
                                                answer all rows of a file, then end
  pdjob convert vllm.yaml > job.yaml            a file of vLLM's own pdjob, as a job file
  pdjob reference                               every key of a job file

By hand, without a launcher:
  pdjob worker --role prefill --model M.gguf --listen 127.0.0.1:8101
  pdjob worker --role decode  --model M.gguf --listen 127.0.0.1:8102
  pdjob router --prefill http://127.0.0.1:8101 --decode http://127.0.0.1:8102
  pdjob router --config router.yaml

Many machines:
  pdjob agent --new-key lab.key                           once; copy it to each machine
  pdjob agent --join 10.0.0.1:7700 --key-file lab.key     on each machine

Exit codes: 0 stopped cleanly, 1 the job failed, 2 bad configuration or usage,
            3 the job could not be placed, 4 some rows of a batch failed,
            130 stopped by Ctrl-C.
)";

constexpr const char* kLinksHelp = R"(
A link is the way on which the KV cache of prompts moves from one prefill worker to one decode
worker. Both ends count what they see; the table has a line for each.

  PAIR       from the prefill worker > to the decode worker
  NODES      where each end is; only if the workers are on several machines
  SEEN BY    the worker that counts
  VIA        shm or cuda_ipc (one machine), tcp or nccl; tls: it is encrypted
  STATE      opening, open, or lost (the line goes a minute later); suspect: KV came damaged twice
             within a minute, and the router avoids the pair for a while if there is another
  EPOCH      of the latest link; grows whenever the decode worker makes one
  RETRIES    links that were made again
  GB/S       bytes by the time from grant to COMMIT, which includes waiting for the prompt
  ALIVE      transfers under way
  LEASES     prompts whose KV is kept for requests that queue at the decode worker
  FAILED     transfers that failed, by cause: their requests are tried again
  STALLS     what stopped moving and was given up, by cause

In a pipe it prints the table once, with --watch once a second; with --json a line per look.

Examples:
  pdjob links --config job.yaml --watch
  pdjob links --job quickstart --json | jq '.workers[].links[] | {peer, gb_per_second}'
)";

constexpr const char* kTopHelp = R"(
Each line is a process. Rates and latencies are those of the last second.

  RUNNING, QUEUED  requests of the worker
  KV               how much of its KV memory holds rows
  BUSY             how much of the time its engine was in a step
  TTFT             from a request's arrival at the worker to its first token
  ITL              between two tokens of a request
  TOKENS/S         tokens that its engine computed: prompts and output

The second line adds up the workers that decode: TTFT and ITL there are what clients see, without
the way through the router.

In a pipe it prints a page a second.
)";

// Returns the memory of a large request to the system when the request ends. By default glibc
// raises its threshold with each large block that is freed. A few bodies of 31 MB would then cost
// 100 MB for good.
void give_back_large_blocks() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
#endif
}

std::string jobs_text(const std::vector<std::string>& running) {
  if (running.empty()) {
    return "no job is running here";
  }
  std::string text = std::to_string(running.size()) + " jobs are running";
  for (const std::string& name : running) {
    text += (name == running.front() ? " (" : ", ") + name;
  }
  return text + ')';
}

// Prints the errors of a bad job file, which are whole lines.
int refuse(const Error& error) {
  std::fputs(error.message.c_str(), stderr);
  return kExitUsage;
}

// Reads a job file, and prints its warnings.
Result<JobConfig> job_of(const std::string& path, const Places& places) {
  auto config = read_job_config(path, places);
  std::fputs(config ? config->warnings.c_str() : "", stderr);
  return config;
}

struct CommandLine {
  CLI::App app{"pdjob: runs one LLM job, with prefill and decode in separate workers.", "pdjob"};
  Places places = places_from_environment();
  int exit_code = kExitUsage;

  std::string config_path;
  std::string job_name;
  bool json = false;
  bool watch = false;
  bool follow = false;
  bool now = false;
  std::string process;
  ScaleFlags scale;
  std::string reference_page = "job-file";
  std::optional<ProcessArguments> processes;
  std::optional<BatchArguments> batches;
  std::optional<CompletionArguments> completions;

  CommandLine() {
    app.footer(kExamples);
    app.set_version_flag("--version", "pdjob " PDJOB_VERSION);
    app.add_option("--config", config_path, "The job file to run")->type_name("FILE");
    app.require_subcommand(0, 1);
    add_plan();
    add_convert();
    add_ps();
    add_top();
    add_status();
    add_links();
    add_nodes();
    add_logs();
    add_scale();
    add_rollout();
    add_explain();
    add_stop();
    processes.emplace(app, places, exit_code);
    batches.emplace(app, places, exit_code);
    add_reference();
    completions.emplace(app, exit_code);
  }

  void add_reference() {
    const std::map<std::string, std::string (*)()> pages = {{"job-file", config_reference},
                                                            {"headers", openai::header_reference},
                                                            {"api", api_reference},
                                                            {"metrics", metric_reference}};
    CLI::App* const reference =
        app.add_subcommand("reference", "Print a reference page, as Markdown");
    reference->add_option("PAGE", reference_page, "job-file, headers, api or metrics")
        ->check(CLI::IsMember({"job-file", "headers", "api", "metrics"}))
        ->capture_default_str();
    reference->callback([this, pages] {
      std::fputs(pages.at(reference_page)().c_str(), stdout);
      exit_code = kExitOk;
    });
  }

  void add_plan() {
    CLI::App* command = app.add_subcommand(
        "plan", "Show which processes a job would run, where and on which ports");
    command->add_option("--config", config_path, "The job file")->type_name("FILE")->required();
    command->add_flag("--json", json, "As JSON");
    command->callback([this] {
      const auto config = job_of(config_path, places);
      exit_code = config ? show_plan(config->mode == Mode::kBatch ? batch_job(*config) : *config,
                                     json ? PlanForm::kJson : PlanForm::kText)
                         : refuse(config.error());
    });
  }

  void add_convert() {
    CLI::App* command =
        app.add_subcommand("convert", "Print a job file of vLLM's own pdjob as one of this pdjob");
    command->add_option("FILE", config_path, "The file")->required();
    command->callback([this] { exit_code = convert_job(config_path, places); });
  }

  void add_status() {
    CLI::App* command = app.add_subcommand("status", "Show the processes of a running job");
    add_which_job(command);
    command->add_flag("--json", json, "As JSON");
    command->add_flag("--watch", watch, "Again and again, until Ctrl-C");
    command->callback([this] {
      exit_code = of_job("status", [this](const std::string& state_dir, const std::string& job) {
        return show_status(state_dir, job, json ? StatusForm::kJson : StatusForm::kText,
                           watch ? ShowMode::kWatch : ShowMode::kOnce);
      });
    });
  }

  void add_ps() {
    CLI::App* command = app.add_subcommand("ps", "List the jobs that run here");
    command->add_flag("--json", json, "As JSON");
    command->callback([this] {
      exit_code =
          show_jobs(default_state_dir(places), json ? StatusForm::kJson : StatusForm::kText);
    });
  }

  void add_top() {
    CLI::App* command = app.add_subcommand(
        "top", "Watch a running job: load, latencies and rates of each process, until Ctrl-C");
    add_which_job(command);
    command->footer(kTopHelp);
    command->callback([this] { exit_code = of_job("top", show_top); });
  }

  void add_links() {
    CLI::App* command =
        app.add_subcommand("links", "Show the KV links between the workers of a running job");
    add_which_job(command);
    command->add_flag("--json", json, "As JSON");
    command->add_flag("--watch", watch, "Again and again, until Ctrl-C");
    command->footer(kLinksHelp);
    command->callback([this] {
      exit_code = of_job("links", [this](const std::string& state_dir, const std::string& job) {
        return show_links(state_dir, job, json ? StatusForm::kJson : StatusForm::kText,
                          watch ? ShowMode::kWatch : ShowMode::kOnce);
      });
    });
  }

  void add_nodes() {
    CLI::App* command = app.add_subcommand(
        "nodes", "Show the machines of a running job, what it reserves there, and what is free");
    add_which_job(command);
    command->add_flag("--json", json, "As JSON");
    command->callback([this] {
      exit_code = of_job("nodes", [this](const std::string& state_dir, const std::string& job) {
        return show_nodes(state_dir, job, json ? StatusForm::kJson : StatusForm::kText);
      });
    });
  }

  void add_logs() {
    CLI::App* command = app.add_subcommand(
        "logs", "Print the log of a process of a running job, from whichever machine it runs on");
    command->add_option("PROCESS", process, "Its name in `pdjob status`; or launcher")->required();
    command->add_flag("-f,--follow", follow, "Its end, and what comes, until the job ends");
    add_which_job(command);
    command->callback([this] {
      exit_code = of_job("logs", [this](const std::string& state_dir, const std::string& job) {
        return show_log(state_dir, job, process, follow ? LogsMode::kFollow : LogsMode::kWhole);
      });
    });
  }

  void add_scale() {
    CLI::App* command = app.add_subcommand(
        "scale", "Change how many workers a running job has; without sizes: show them");
    command
        ->add_option("SIZES", scale.sizes,
                     "GROUP=WORKERS, such as decode=2 prefill=1; of several models, "
                     "NAME-decode=2; decode=auto: as the job file says")
        ->type_name("GROUP=WORKERS");
    command->add_flag("--no-wait", scale.no_wait, "Do not wait until the new size serves");
    command
        ->add_option("--timeout", scale.timeout_s,
                     "Seconds to wait; after that the job goes on by itself")
        ->check(CLI::Range(1, 86400))
        ->capture_default_str();
    add_which_job(command);
    command->callback([this] {
      exit_code = of_job("scale", [this](const std::string& state_dir, const std::string& job) {
        return scale_job(state_dir, job, scale);
      });
    });
  }

  void add_rollout() {
    CLI::App* command = app.add_subcommand("rollout", "Look at a job of mode rollout");
    CLI::App* status = command->add_subcommand(
        "status", "Show the weights that a running job serves with, and its last update");
    command->require_subcommand(1);
    add_which_job(status);
    status->add_flag("--json", json, "As JSON");
    status->callback([this] {
      exit_code =
          of_job("rollout status", [this](const std::string& state_dir, const std::string& job) {
            return show_rollout(state_dir, job, json ? StatusForm::kJson : StatusForm::kText);
          });
    });
  }

  void add_explain() {
    CLI::App* command = app.add_subcommand(
        "explain", "Show why a running job changed: its last decisions, with their reasons");
    add_which_job(command);
    command->callback([this] { exit_code = of_job("explain", show_decisions); });
  }

  void add_stop() {
    CLI::App* command = app.add_subcommand(
        "stop", "End a running job, as Ctrl-C in its terminal would, and wait for its end");
    command->add_flag("--now", now, "Do not let requests under way finish");
    add_which_job(command);
    command->callback([this] {
      exit_code = of_job("stop", [this](const std::string& state_dir, const std::string& job) {
        return stop_job(state_dir, job, now ? StopHow::kNow : StopHow::kDrain, places);
      });
    });
  }

  void add_which_job(CLI::App* command) {
    auto* by_name =
        command->add_option("--job", job_name, "The job's name; not needed where one runs")
            ->type_name("NAME");
    auto* by_file = command
                        ->add_option("--config", config_path,
                                     "The job's file, if its state_dir is not the default")
                        ->type_name("FILE");
    by_name->excludes(by_file);
  }

  template <class Show>
  int of_job(const std::string& command, const Show& show) {
    if (config_path.empty()) {
      const std::vector<std::string> running = JobFolder::running(default_state_dir(places));
      if (job_name.empty() && running.size() != 1) {
        return refuse(
            {ErrorCode::kInvalidArgument, "pdjob " + command + ": " + jobs_text(running) +
                                              ": name one by --job NAME or --config FILE\n"});
      }
      return show(default_state_dir(places), job_name.empty() ? running.front() : job_name);
    }
    const auto config = read_job_config(config_path, places);
    return config ? show(config->launcher.state_dir, config->name) : refuse(config.error());
  }

  // Says which flag or subcommand was meant by the first one that does not exist.
  void suggest() const {
    const CLI::App* command = &app;
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
    }
    std::vector<std::string> known;
    for (const CLI::Option* option : command->get_options()) {
      known.push_back(option->get_name());
    }
    for (const CLI::App* subcommand : command->get_subcommands(
             [](const CLI::App* each) { return !each->get_group().empty(); })) {
      known.push_back(subcommand->get_name());
    }
    for (const std::string& word : app.remaining(true)) {
      if (const std::string meant = nearest_word(word, known); !meant.empty()) {
        std::fprintf(stderr, "pdjob: %s: did you mean %s?\n", word.c_str(), meant.c_str());
        return;
      }
    }
  }

  int run(int argc, char** argv) {
    give_back_large_blocks();
    try {
      app.parse(argc, argv);
    } catch (const CLI::ExtrasError& error) {
      suggest();
      return app.exit(error) == 0 ? kExitOk : kExitUsage;
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? kExitOk : kExitUsage;
    }
    if (!app.get_subcommands().empty()) {
      return exit_code;
    }
    if (config_path.empty()) {
      std::fputs(app.help().c_str(), stderr);
      return kExitUsage;
    }
    const auto config = read_job_config(config_path, places);
    if (config && config->mode == Mode::kBatch) {
      return run_batch_command({.config = config_path}, places);
    }
    std::fputs(config ? config->warnings.c_str() : "", stderr);
    return config ? run_job(*config) : refuse(config.error());
  }
};

}  // namespace

}  // namespace pdjob::launcher

int main(int argc, char** argv) { return pdjob::launcher::CommandLine().run(argc, argv); }
