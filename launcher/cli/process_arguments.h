// ProcessArguments: the commands of single processes on the command line: worker, router, agent,
// and those that launchers and workers start themselves. It must outlive the parsing of the
// arguments. A door to CLI11. Value.
#pragma once

#include <string>

#include "launcher/cli/agent_command.h"
#include "launcher/cli/role_command.h"

namespace CLI {
class App;
}

namespace pdjob::launcher {

class ProcessArguments {
 public:
  // Adds the commands to `app`. Each sets `exit_code` when it has run, while arguments are parsed.
  ProcessArguments(CLI::App& app, const Places& places, int& exit_code);
  ProcessArguments(const ProcessArguments&) = delete;
  ProcessArguments& operator=(const ProcessArguments&) = delete;
  ~ProcessArguments() = default;

 private:
  void add_worker(CLI::App& app);
  void add_router(CLI::App& app);
  void add_agent(CLI::App& app);
  // Launchers start this one.
  void add_batch_server(CLI::App& app);
  void add_store(CLI::App& app);
  // The agents of a pool start these two.
  void add_pool(CLI::App& app);
  // Workers start these two.
  void add_grammar_helper(CLI::App& app);
  void add_engine_guard(CLI::App& app);

  const Places& places_;
  int& exit_code_;
  int spec_fd_ = -1;
  int channel_ = -1;
  int vocabulary_ = -1;
  WorkerFlags worker_;
  RouterFlags router_;
  AgentFlags agent_;
  std::string policy_;
  std::string protocol_;
};

}  // namespace pdjob::launcher
