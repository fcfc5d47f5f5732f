// The command line of pdjob. The only door to CLI11.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <malloc.h>

#include "batch/batch_process.h"
#include "common/config/config_text.h"
#include "common/exit_code.h"
#include "launcher/cli/agent_command.h"
#include "launcher/cli/batch_command.h"
#include "launcher/cli/convert_command.h"
#include "launcher/cli/links_command.h"
#include "launcher/cli/logs_command.h"
#include "launcher/cli/reference.h"
#include "launcher/cli/role_command.h"
#include "launcher/cli/status_command.h"
#include "launcher/cli/stop_command.h"
#include "launcher/job_folder.h"
#include "launcher/launcher_process.h"
#include "launcher/plan/job_config.h"
#include "openai/headers.h"
#include "worker/foreign/engine_guard.h"
#include "worker/grammar/grammar_helper.h"

namespace pdjob::launcher {

namespace {

constexpr const char* kExamples = R"(Examples:
  pdjob --config configs/quickstart.yaml        start a job; Ctrl-C drains and stops it
  pdjob plan --config configs/local_2p2d.yaml   show what would run, and start nothing
  pdjob status --job quickstart                 what runs, and how it is doing
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

constexpr const char* kBatchHelp = R"(
Each row is answered exactly once, whatever dies: after a crash or Ctrl-C, the same command goes on.

Examples:
  pdjob batch rows.jsonl --out results --config job.yaml
  pdjob batch 'parts/*.jsonl.gz' --out results --url http://127.0.0.1:8000
  pdjob batch names.csv --out results --config job.yaml --id-column id \
    --template '{"messages": [{"role": "user", "content": "Describe {{name}}."}], "max_tokens": 64}'
  pdjob batch status results
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
  int spec_fd = -1;
  int channel = -1;
  int vocabulary = -1;
  WorkerFlags worker;
  RouterFlags router;
  AgentFlags agent;
  BatchFlags batch;
  std::string policy;
  std::string protocol;
  std::string reference_page = "job-file";

  CommandLine() {
    app.footer(kExamples);
    app.set_version_flag("--version", "pdjob " PDJOB_VERSION);
    app.add_option("--config", config_path, "The job file to run")->type_name("FILE");
    app.require_subcommand(0, 1);
    add_plan();
    add_convert();
    add_status();
    add_links();
    add_nodes();
    add_logs();
    add_stop();
    add_worker();
    add_router();
    add_agent();
    add_batch();
    add_batch_job();
    add_grammar_helper();
    add_engine_guard();
    add_reference();
  }

  void add_reference() {
    const std::map<std::string, std::string (*)()> pages = {{"job-file", config_reference},
                                                            {"headers", openai::header_reference},
                                                            {"metrics", metric_reference}};
    CLI::App* const reference =
        app.add_subcommand("reference", "Print a reference page, as Markdown");
    reference->add_option("PAGE", reference_page, "job-file, headers or metrics")
        ->check(CLI::IsMember({"job-file", "headers", "metrics"}))
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
      exit_code = config ? show_plan(*config, json ? PlanForm::kJson : PlanForm::kText)
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
    command->callback([this] {
      exit_code = of_job("status", [this](const std::string& state_dir, const std::string& job) {
        return show_status(state_dir, job, json ? StatusForm::kJson : StatusForm::kText);
      });
    });
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
                          watch ? LinksMode::kWatch : LinksMode::kOnce);
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

  void add_worker() {
    CLI::App* command = app.add_subcommand("worker", "Run one engine worker by hand");
    command->add_option("--role", worker.role, "prefill, decode or both")->capture_default_str();
    command->add_option("--model", worker.model, "A .gguf file or the name of an installed model")
        ->type_name("MODEL");
    command->add_option("--listen", worker.listen, "Where to serve")
        ->type_name("HOST:PORT")
        ->capture_default_str();
    command->add_option("--name", worker.name, "Its name in logs and replies");
    command
        ->add_option(
            "--key-file", worker.key_file,
            "Holds the key that its port wants (Authorization: Bearer KEY); workers of one "
            "file move KV between them")
        ->type_name("FILE");
    command->add_flag("--no-key", worker.no_key,
                      "Serve whoever comes, also where others than this machine can reach it");
    command
        ->add_option(
            "--set", worker.settings,
            "A key of the job file: engine.threads=2, kvtransfer.transport=tcp; repeatable")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command->add_option("--spec-fd", spec_fd, "Given by the launcher")->group("");
    command->callback([this] {
      exit_code =
          spec_fd >= 0 ? run_worker_by_spec(spec_fd, places) : run_worker_by_flags(worker, places);
    });
  }

  void add_router() {
    CLI::App* command = app.add_subcommand("router", "Run the front door by hand");
    auto* file =
        command
            ->add_option(
                "--config", router.config,
                "Workers and `router` section in a file (docs/how-to/workers-by-hand.md), in "
                "place of the flags below")
            ->type_name("FILE");
    command->add_option("--listen", router.listen, "Where to serve")
        ->type_name("HOST:PORT")
        ->capture_default_str()
        ->excludes(file);
    command
        ->add_option("--prefill", router.prefill,
                     "A prefill worker; URL?bootstrap_port=N where it is not "
                     "router.bootstrap_port, and ?kv_events_port=N&kv_replay_port=N of any worker "
                     "where they are not those of router.kv_events; repeatable")
        ->type_name("URL")
        ->excludes(file);
    command->add_option("--decode", router.decode, "A decode worker; repeatable")
        ->type_name("URL")
        ->excludes(file);
    command->add_option("--worker", router.workers, "A worker that does both; repeatable")
        ->type_name("URL")
        ->excludes(file);
    command
        ->add_option("--protocol", protocol,
                     "Short for router.protocol: what the workers above speak (auto, pdjob, nixl, "
                     "nixl_push, mooncake, sglang)")
        ->type_name("PROTOCOL")
        ->excludes(file);
    command
        ->add_option("--policy", policy, "Short for router.prefill_policy and router.decode_policy")
        ->type_name("POLICY")
        ->excludes(file);
    command
        ->add_option("--set", router.settings,
                     "A key of the job file: router.attempts=2; repeatable")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false)
        ->excludes(file);
    command
        ->add_option("--worker-key-file", router.worker_key_file,
                     "Holds the key that all workers want, as their --key-file, vLLM's or SGLang's "
                     "--api-key; a client's own Authorization does not reach them then")
        ->type_name("FILE");
    command->add_option("--spec-fd", spec_fd, "Given by the launcher")->group("");
    command->callback([this] {
      if (!protocol.empty()) {
        router.settings.push_back("router.protocol=" + protocol);
      }
      if (!policy.empty()) {
        router.settings.push_back("router.prefill_policy=" + policy);
        router.settings.push_back("router.decode_policy=" + policy);
      }
      exit_code =
          spec_fd >= 0 ? run_router_by_spec(spec_fd, places) : run_router_by_flags(router, places);
    });
  }

  void add_agent() {
    CLI::App* command = app.add_subcommand(
        "agent", "Lend this machine to a job: run the processes that its launcher orders");
    command
        ->add_option("--join", agent.join,
                     "Where a launcher listens or will listen (clusters.NAME.listen of its job "
                     "file). The agent waits for it, and serves one launcher after the other")
        ->type_name("HOST:PORT");
    command
        ->add_option("--key-file", agent.key_file,
                     "Holds the key that launcher and agents share. Whoever has it may run "
                     "commands here, so run the agent as a user without privileges")
        ->type_name("FILE");
    command
        ->add_option("--key-fd", agent.key_fd,
                     "In place of --key-file: the key is the first line of this descriptor (0: "
                     "stdin). The agent ends when the other end is closed")
        ->type_name("N");
    command
        ->add_option("--new-key", agent.new_key_file,
                     "Only make a new key file, which its owner alone can read")
        ->type_name("FILE");
    command->add_option("--lock-fd", agent.lock_fd, "Given by the launcher")->group("");
    command->add_option("--name", agent.name, "The node's name; default: the machine's")
        ->type_name("NAME");
    command->add_option("--cores", agent.cores, "How many cores the node offers [all]");
    command->add_option("--memory", agent.memory_bytes, "How many bytes of memory it offers [all]");
    command->add_option("--label", agent.labels, "What groups of workers may ask for; repeatable")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command
        ->add_option("--host", agent.host,
                     "Which address its processes listen on: an address, an interface or a "
                     "network; default: clusters.NAME.host, or the one towards the launcher")
        ->type_name("HOST");
    command
        ->add_option("--log-dir", agent.log_dir,
                     "Holds one log file per process; default: in the state folder")
        ->type_name("DIR");
    command->callback([this] { exit_code = run_agent_by_flags(agent, places); });
  }

  void add_batch() {
    CLI::App* command =
        app.add_subcommand("batch", "Answer all rows of files, each exactly once, then end");
    command->footer(kBatchHelp);
    command->require_subcommand(0, 1);
    command->add_option("IN", batch.inputs,
                        "Files of rows (.jsonl, .csv, .txt; also .gz, .zst), patterns, or - for "
                        "standard input");
    command->add_option("--out", batch.out, "The folder for results; the same one goes on")
        ->type_name("DIR");
    auto* config = command
                       ->add_option("--config", batch.config,
                                    "The job file; the job is started for the batch, as NAME-batch")
                       ->type_name("FILE");
    command->add_option("--url", batch.url, "A running server, in place of a job of its own")
        ->type_name("URL")
        ->excludes(config);
    command->add_option("--key-file", batch.key_file, "Holds the API key that the server wants")
        ->type_name("FILE");
    command
        ->add_option("--template", batch.body_template,
                     "The body of each request, with {{column}} in it: JSON, or a file that has it")
        ->type_name("JSON|FILE");
    command
        ->add_option("--endpoint", batch.endpoint,
                     "Where requests of a template go; by default what it looks like")
        ->type_name("PATH")
        ->check(CLI::IsMember({"/v1/chat/completions", "/v1/completions"}));
    command
        ->add_option("--id-column", batch.id_column,
                     "The column that has the custom_id; default: row-1, row-2, ...")
        ->type_name("COLUMN");
    command->add_option("--format", batch.format, "Of all files; default: by their names")
        ->check(CLI::IsMember({"openai", "jsonl", "csv", "text"}));
    command->add_option("--order", batch.order, "Of the results: input or completed")
        ->check(CLI::IsMember({"input", "completed"}))
        ->capture_default_str();
    command
        ->add_option("--concurrency", batch.concurrency,
                     "Rows in flight at most; default: as many as help")
        ->check(CLI::Range(1, 16384));
    command->add_option("--attempts", batch.attempts, "Tries of a row at which the server fails")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    command->add_option("--row-timeout", batch.row_timeout, "Of one try")->capture_default_str();
    command
        ->add_option("--patience", batch.patience,
                     "The batch ends if the server answers nothing for so long")
        ->capture_default_str();
    auto* restart =
        command->add_flag("--restart", batch.restart, "Forget the results and begin anew");
    command->add_flag("--retry-failed", batch.retry_failed, "Ask the failed rows again")
        ->excludes(restart);
    add_batch_status(command);
    command->callback([this, command] {
      if (!command->get_subcommands().empty()) {
        return;
      }
      if (batch.inputs.empty() || batch.out.empty() || batch.config.empty() == batch.url.empty()) {
        exit_code = refuse({ErrorCode::kInvalidArgument,
                            "pdjob batch: name input files, --out, and one of --config and "
                            "--url\n"});
        return;
      }
      exit_code = run_batch_command(batch, places);
    });
  }

  void add_batch_status(CLI::App* batch_command) {
    CLI::App* command = batch_command->add_subcommand("status", "Show how far a batch is");
    command->add_option("DIR", batch.out, "Its folder")->required();
    command->callback([this] { exit_code = batch::show_batch_status(batch.out); });
  }

  // A batch starts this command.
  void add_batch_job() {
    CLI::App* command = app.add_subcommand("batch-job", "")->group("");
    command->add_option("config", config_path)->required();
    command->callback([this] { exit_code = run_batch_job(config_path, places); });
  }

  // Workers start this command.
  void add_grammar_helper() {
    CLI::App* command = app.add_subcommand("compile-grammar", "")->group("");
    command->add_option("channel", channel)->required();
    command->add_option("vocabulary", vocabulary)->required();
    command->callback([this] { exit_code = worker::run_grammar_helper(channel, vocabulary); });
  }

  // Workers start this command, too.
  void add_engine_guard() {
    CLI::App* command = app.add_subcommand("guard-engine", "")->group("");
    command->add_option("channel", channel)->required();
    command->prefix_command();
    command->callback(
        [this, command] { exit_code = worker::run_engine_guard(channel, command->remaining()); });
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
    const auto config = job_of(config_path, places);
    return config ? run_job(*config) : refuse(config.error());
  }
};

}  // namespace

}  // namespace pdjob::launcher

int main(int argc, char** argv) { return pdjob::launcher::CommandLine().run(argc, argv); }
