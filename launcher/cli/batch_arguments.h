// BatchArguments: `pdjob batch` on the command line. It must outlive the parsing of the arguments.
// A door to CLI11. Value.
#pragma once

#include <string>

#include "launcher/cli/batch_command.h"

namespace CLI {
class App;
}

namespace pdjob::launcher {

class BatchArguments {
 public:
  // Adds the commands to `app`. Each sets `exit_code` when it has run, while arguments are parsed.
  BatchArguments(CLI::App& app, const Places& places, int& exit_code);
  BatchArguments(const BatchArguments&) = delete;
  BatchArguments& operator=(const BatchArguments&) = delete;
  ~BatchArguments() = default;

 private:
  void add_batch(CLI::App& app);
  void add_flags(CLI::App* command);
  // A flag that is a key of the job file's section `batch`, too.
  void add_key(CLI::App* command, const char* flag, const std::string& key, const char* type,
               const char* doc);
  void add_status(CLI::App* batch);
  void add_job(CLI::App& app);

  const Places& places_;
  std::string job_original_;
  int& exit_code_;
  BatchFlags flags_;
  std::string folder_;
  std::string job_file_;
  std::vector<std::string> job_settings_;
};

}  // namespace pdjob::launcher
