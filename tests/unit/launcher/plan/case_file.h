// A file of cases: job files, each with the whole text that is expected of it. Run the test with
// PDJOB_UPDATE=1 to rewrite what is expected, and read the difference. Value.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace pdjob::launcher {

class CaseFile {
 public:
  struct Case {
    std::string name;
    std::string yaml;
    std::string expected;
  };

  // `divider`: the line between a job file and what is expected of it.
  CaseFile(std::string path, std::string divider)
      : path_(std::move(path)), divider_(std::move(divider)) {
    std::ifstream file(path_);
    std::string line;
    std::string* into = &preamble_;
    while (std::getline(file, line)) {
      if (line.starts_with("=== ")) {
        cases_.push_back({.name = line.substr(4)});
        into = &cases_.back().yaml;
      } else if (line == divider_) {
        into = &cases_.back().expected;
      } else {
        *into += line + "\n";
      }
    }
  }

  std::vector<Case>& cases() { return cases_; }
  static bool updating() { return std::getenv("PDJOB_UPDATE") != nullptr; }

  void write() const {
    std::ofstream file(path_);
    file << preamble_;
    for (const Case& each : cases_) {
      file << "=== " << each.name << "\n" << each.yaml << divider_ << "\n" << each.expected;
    }
  }

 private:
  const std::string path_;
  const std::string divider_;
  std::string preamble_;
  std::vector<Case> cases_;
};

}  // namespace pdjob::launcher
