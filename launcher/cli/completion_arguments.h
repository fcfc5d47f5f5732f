// CompletionArguments: `pdjob completion SHELL`. It prints a script that completes the command line
// in a shell. The script is made from the command line itself. A door to CLI11. Value.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace pdjob::launcher {

class CompletionArguments {
 public:
  // Adds the command to `app`. It sets `exit_code` when it has run, while arguments are parsed.
  CompletionArguments(CLI::App& app, int& exit_code);
  CompletionArguments(const CompletionArguments&) = delete;
  CompletionArguments& operator=(const CompletionArguments&) = delete;
  ~CompletionArguments() = default;

 private:
  std::string shell_;
};

}  // namespace pdjob::launcher
