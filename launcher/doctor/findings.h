// What `pdjob doctor` thinks of a machine: one line for each thing that a job may need, and how to
// mend it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/os/machine_share.h"
#include "launcher/doctor/machine_files.h"

namespace pdjob::launcher {

// A package of one Python.
struct PackageFact {
  std::string name;     // "vllm"
  std::string version;  // Empty: it is not installed.
  std::string error;    // Of its import. Empty: there was none, or it was not tried.
};
struct PythonFact {
  std::string program;
  bool answered = false;  // In time.
  std::vector<PackageFact> packages;
};

struct DoctorFacts {
  MachineFiles files;
  MachineShare share;
  std::vector<PythonFact> pythons;  // That of a program `vllm` comes before `python3`.
  std::string vllm;                 // The program's path. Empty: it is not in $PATH.
  std::string ucx;                  // Version of the machine's own. Empty: there is none.
  std::optional<uint64_t> shared_memory_free;  // Bytes of /dev/shm. Nothing: there is none.
  std::optional<bool> clock_synchronized;      // Nothing: unknown.
};

enum class Level { kOk, kWarning, kProblem };
struct Finding {
  std::string name;
  Level level = Level::kOk;
  std::string found;
  std::string fix;  // Empty: nothing needs to be done.
};

std::vector<Finding> findings_of(const DoctorFacts& facts);
// The worst level of all.
Level worst(const std::vector<Finding>& findings);

// What the Python program kPythonProbe prints. Other lines are ignored.
PythonFact python_fact(const std::string& program, std::string_view printed);
extern const char* const kPythonProbe;

std::string findings_text(const std::vector<Finding>& findings);
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace pdjob::launcher
