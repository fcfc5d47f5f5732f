// PoolArguments: the commands of a pool on the command line: keeper, submit, jobs, cancel, quota.
// It must outlive the parsing of the arguments. A door to CLI11. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/look/ask.h"
#include "launcher/pool/keeper_process.h"

namespace CLI {
class App;
}

namespace pdjob::launcher {

class PoolArguments {
 public:
  // Adds the commands to `app`. Each sets `exit_code` when it has run, while arguments are parsed.
  PoolArguments(CLI::App& app, const Places& places, int& exit_code);
  PoolArguments(const PoolArguments&) = delete;
  PoolArguments& operator=(const PoolArguments&) = delete;
  ~PoolArguments() = default;

 private:
  void add_keeper(CLI::App& app);
  void add_submit(CLI::App& app);
  void add_jobs(CLI::App& app);
  void add_cancel(CLI::App& app);
  void add_quota(CLI::App& app);
  void add_pool(CLI::App& command);

  int keep();
  Status submit() const;
  Status show() const;
  Status cancel() const;
  Status set_quota() const;
  // The exit code of a command; an error is printed.
  int code_of(const char* command, const Status& done) const;

  Result<std::string> ask(const Order& order) const;
  // Waits until the job has the state that is waited for: it runs, or it has ended.
  Status wait_for(const std::string& job, bool until_ended) const;

  const Places& places_;
  int& exit_code_;
  KeeperOptions keeper_;
  std::string ports_ = "7800-7899";
  uint64_t orphan_timeout_s_ = 600;
  std::string file_;
  std::vector<std::string> settings_;
  std::string queue_;
  std::string priority_;
  std::string job_;
  bool wait_ = false;
  bool json_ = false;
  uint64_t cores_ = 0;
  uint64_t gpus_ = 0;
};

}  // namespace pdjob::launcher
