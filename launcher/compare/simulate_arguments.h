// SimulateArguments: `pdjob simulate` on the command line. It must outlive the parsing of the
// arguments. A door to CLI11. Value.
#pragma once

#include <string>
#include <vector>

#include "launcher/compare/simulate_command.h"

namespace CLI {
class App;
}

namespace pdjob::launcher {

class SimulateArguments {
 public:
  // Adds the command to `app`. It sets `exit_code` when it has run, while arguments are parsed.
  SimulateArguments(CLI::App& app, const Places& places, int& exit_code);
  SimulateArguments(const SimulateArguments&) = delete;
  SimulateArguments& operator=(const SimulateArguments&) = delete;
  ~SimulateArguments() = default;

 private:
  void add_load(CLI::App* command);
  int run();

  const Places& places_;
  SimulateFlags flags_;
  std::string job_file_;
  std::vector<std::string> settings_;
};

}  // namespace pdjob::launcher
