// ReferenceArguments: `pdjob reference PAGE`. It prints pages that are made of the declarations in
// the code: Markdown, and a manual page of the command line. A door to CLI11. Value.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace pdjob::launcher {

// The pages, with a space between two.
inline constexpr const char* kReferencePages = "job-file headers metrics man";

class ReferenceArguments {
 public:
  // Adds the command to `app`. It sets `exit_code` when it has run, while arguments are parsed.
  ReferenceArguments(CLI::App& app, const char* version, int& exit_code);
  ReferenceArguments(const ReferenceArguments&) = delete;
  ReferenceArguments& operator=(const ReferenceArguments&) = delete;
  ~ReferenceArguments() = default;

 private:
  std::string page_ = "job-file";
};

}  // namespace pdjob::launcher
