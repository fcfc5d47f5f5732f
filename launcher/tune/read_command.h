// `pdjob tune --read`: makes the model of an engine from published measurements.
#pragma once

#include <string>
#include <vector>

namespace pdjob::launcher {

struct ReadFlags {
  std::vector<std::string> files;
  std::string kind;
  std::string out;
  std::string name;  // Of the model; empty: the one that the files have.
  std::string engine;
  std::string device;
};

// The words of `kind`.
std::vector<std::string> run_kinds();

// Returns the exit code (common/exit_code.h).
int read_measurements(const ReadFlags& flags);

}  // namespace pdjob::launcher
