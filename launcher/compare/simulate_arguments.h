// SimulateArguments: `pdjob simulate` on the command line. It must outlive the parsing of the
// arguments. A door to CLI11. Value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/compare/simulate_command.h"

namespace CLI {
class App;
}

namespace pdjob::launcher {

// The options of a simulated load and its job, which other commands have, too.
struct SimulationOptions {
  SimulateFlags flags;
  std::string job_file;
  std::vector<std::string> settings;  // Of --set.

  // It must outlive the parsing of the arguments.
  void add_to(CLI::App* command);
  // Says on stderr what is wrong with the job file. Empty: the exit code is kExitUsage.
  std::optional<JobConfig> job(const Places& places) const;

 private:
  void add_load(CLI::App* command);
};

class SimulateArguments {
 public:
  // Adds the command to `app`. It sets `exit_code` when it has run, while arguments are parsed.
  SimulateArguments(CLI::App& app, const Places& places, int& exit_code);
  SimulateArguments(const SimulateArguments&) = delete;
  SimulateArguments& operator=(const SimulateArguments&) = delete;
  ~SimulateArguments() = default;

 private:
  SimulationOptions options_;
};

}  // namespace pdjob::launcher
