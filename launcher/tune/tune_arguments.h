// TuneArguments: `pdjob tune` on the command line. It must outlive the parsing of the arguments. A
// door to CLI11. Value.
#pragma once

#include "launcher/compare/tune_load.h"
#include "launcher/tune/measure_command.h"
#include "launcher/tune/read_command.h"

namespace CLI {
class App;
}

namespace pdjob::launcher {

class TuneArguments {
 public:
  // Adds the command to `app`. It sets `exit_code` when it has run, while arguments are parsed.
  TuneArguments(CLI::App& app, const Places& places, int& exit_code);
  TuneArguments(const TuneArguments&) = delete;
  TuneArguments& operator=(const TuneArguments&) = delete;
  ~TuneArguments() = default;

 private:
  void add_search(CLI::App* command);
  void add_measure(CLI::App* command);
  void add_read(CLI::App* command);
  int run();

  const Places& places_;
  SimulationOptions simulation_;
  TuneLoadFlags search_;
  MeasureFlags measure_;
  ReadFlags read_;  // Its name, device and out are those of all.
};

}  // namespace pdjob::launcher
