#include "launcher/cli/process_arguments.h"

#include <CLI/CLI.hpp>

#include "launcher/pool/pool_specs.h"
#include "worker/foreign/engine_guard.h"
#include "worker/grammar/grammar_helper.h"

namespace pdjob::launcher {

ProcessArguments::ProcessArguments(CLI::App& app, const Places& places, int& exit_code)
    : places_(places), exit_code_(exit_code) {
  add_worker(app);
  add_router(app);
  add_agent(app);
  add_batch_server(app);
  add_store(app);
  add_pool(app);
  add_grammar_helper(app);
  add_engine_guard(app);
}

void ProcessArguments::add_worker(CLI::App& app) {
  CLI::App* command = app.add_subcommand("worker", "Run one engine worker by hand");
  command->add_option("--role", worker_.role, "prefill, decode or both")->capture_default_str();
  command->add_option("--model", worker_.model, "A .gguf file or the name of an installed model")
      ->type_name("MODEL");
  command->add_option("--listen", worker_.listen, "Where to serve")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  command->add_option("--name", worker_.name, "Its name in logs and replies");
  command
      ->add_option("--key-file", worker_.key_file,
                   "Holds the key that its port wants (Authorization: Bearer KEY); workers of one "
                   "file move KV between them")
      ->type_name("FILE");
  command->add_flag("--no-key", worker_.no_key,
                    "Serve whoever comes, also where others than this machine can reach it");
  command
      ->add_option("--set", worker_.settings,
                   "A key of the job file: engine.threads=2, kvtransfer.transport=tcp; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--spec-fd", spec_fd_, "Given by the launcher")->group("");
  command->callback([this] {
    exit_code_ = spec_fd_ >= 0 ? run_worker_by_spec(spec_fd_, places_)
                               : run_worker_by_flags(worker_, places_);
  });
}

void ProcessArguments::add_router(CLI::App& app) {
  CLI::App* command = app.add_subcommand("router", "Run the front door by hand");
  auto* file =
      command
          ->add_option(
              "--config", router_.config,
              "Workers and `router` section in a file (docs/how-to/workers-by-hand.md), in "
              "place of the flags below")
          ->type_name("FILE");
  command->add_option("--listen", router_.listen, "Where to serve")
      ->type_name("HOST:PORT")
      ->capture_default_str()
      ->excludes(file);
  command
      ->add_option("--prefill", router_.prefill,
                   "A prefill worker; URL?bootstrap_port=N where it is not "
                   "router.bootstrap_port, and ?kv_events_port=N&kv_replay_port=N of any worker "
                   "where they are not those of router.kv_events; repeatable")
      ->type_name("URL")
      ->excludes(file);
  command->add_option("--decode", router_.decode, "A decode worker; repeatable")
      ->type_name("URL")
      ->excludes(file);
  command->add_option("--worker", router_.workers, "A worker that does both; repeatable")
      ->type_name("URL")
      ->excludes(file);
  command
      ->add_option("--protocol", protocol_,
                   "Short for router.protocol: what the workers above speak (auto, pdjob, nixl, "
                   "nixl_push, mooncake, sglang)")
      ->type_name("PROTOCOL")
      ->excludes(file);
  command
      ->add_option("--policy", policy_, "Short for router.prefill_policy and router.decode_policy")
      ->type_name("POLICY")
      ->excludes(file);
  command
      ->add_option("--set", router_.settings,
                   "A key of the job file: router.attempts=2; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->excludes(file);
  command
      ->add_option("--worker-key-file", router_.worker_key_file,
                   "Holds the key that all workers want, as their --key-file, vLLM's or SGLang's "
                   "--api-key; a client's own Authorization does not reach them then")
      ->type_name("FILE");
  command->add_option("--spec-fd", spec_fd_, "Given by the launcher")->group("");
  command->callback([this] {
    if (!protocol_.empty()) {
      router_.settings.push_back("router.protocol=" + protocol_);
    }
    if (!policy_.empty()) {
      router_.settings.push_back("router.prefill_policy=" + policy_);
      router_.settings.push_back("router.decode_policy=" + policy_);
    }
    exit_code_ =
        spec_fd_ >= 0 ? run_router_by_spec(spec_fd_) : run_router_by_flags(router_, places_);
  });
}

void ProcessArguments::add_agent(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "agent", "Lend this machine to a job: run the processes that its launcher orders");
  command
      ->add_option("--join", agent_.join,
                   "Where a launcher listens or will listen (clusters.NAME.listen of its job "
                   "file). The agent waits for it, and serves one launcher after the other. "
                   "Repeatable: it tries them in turn")
      ->type_name("HOST:PORT")
      ->allow_extra_args(false);
  command
      ->add_option("--key-file", agent_.key_file,
                   "Holds the key that launcher and agents share. Whoever has it may run "
                   "commands here, so run the agent as a user without privileges")
      ->type_name("FILE");
  command
      ->add_option("--key-fd", agent_.key_fd,
                   "In place of --key-file: the key is the first line of this descriptor (0: "
                   "stdin). The agent ends when the other end is closed")
      ->type_name("N");
  command
      ->add_option("--new-key", agent_.new_key_file,
                   "Only make a new key file, which its owner alone can read")
      ->type_name("FILE");
  command->add_option("--lock-fd", agent_.lock_fd, "Given by the launcher")->group("");
  command->add_option("--name", agent_.name, "The node's name; default: the machine's")
      ->type_name("NAME");
  command->add_option("--cores", agent_.cores, "How many cores the node offers at most [all]");
  command->add_option("--memory", agent_.memory_bytes,
                      "How many bytes of memory it offers at most [all]");
  command->add_flag("--granted", agent_.granted, "Given by the launcher")->group("");
  command->add_option("--label", agent_.labels, "What groups of workers may ask for; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--host", agent_.host,
                   "Which address its processes listen on: an address, an interface or a "
                   "network; default: clusters.NAME.host, or the one towards the launcher")
      ->type_name("HOST");
  command
      ->add_option("--log-dir", agent_.log_dir,
                   "Holds one log file per process; default: in the state folder")
      ->type_name("DIR");
  command->callback([this] { exit_code_ = run_agent_by_flags(agent_, places_); });
}

void ProcessArguments::add_batch_server(CLI::App& app) {
  CLI::App* command = app.add_subcommand("batch-server", "")->group("");
  command->add_option("--spec-fd", spec_fd_)->required();
  command->callback([this] { exit_code_ = run_batch_by_spec(spec_fd_); });
}

void ProcessArguments::add_store(CLI::App& app) {
  CLI::App* command = app.add_subcommand("store", "")->group("");
  command->add_option("--spec-fd", spec_fd_)->required();
  command->callback([this] { exit_code_ = run_store_by_spec(spec_fd_); });
}

void ProcessArguments::add_pool(CLI::App& app) {
  CLI::App* agent = app.add_subcommand(kShareCommand, "")->group("");
  agent->add_option("--spec-fd", spec_fd_)->required();
  agent->callback([this] { exit_code_ = run_pool_agent_by_spec(spec_fd_, places_); });
  CLI::App* launcher = app.add_subcommand(kLaunchCommand, "")->group("");
  launcher->add_option("--spec-fd", spec_fd_)->required();
  launcher->callback([this] { exit_code_ = run_pool_launcher_by_spec(spec_fd_, places_); });
}

void ProcessArguments::add_grammar_helper(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compile-grammar", "")->group("");
  command->add_option("channel", channel_)->required();
  command->add_option("vocabulary", vocabulary_)->required();
  command->callback([this] { exit_code_ = worker::run_grammar_helper(channel_, vocabulary_); });
}

void ProcessArguments::add_engine_guard(CLI::App& app) {
  CLI::App* command = app.add_subcommand("guard-engine", "")->group("");
  command->add_option("channel", channel_)->required();
  command->prefix_command();
  command->callback(
      [this, command] { exit_code_ = worker::run_engine_guard(channel_, command->remaining()); });
}

}  // namespace pdjob::launcher
