// StagesConfig: the section `batch.stages` of a job file: programs that a row goes through before
// its request is made, and those that its answer goes through. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "common/json/json_writer.h"
#include "common/time.h"

namespace pdjob::batch {

struct StageConfig {
  std::string name;                  // Unique among all stages of the batch.
  std::vector<std::string> command;  // Empty: `python` is there.
  std::string python;                // "FILE:FUNCTION".
  uint32_t workers = 1;              // Processes.
  uint32_t pipeline = 4;             // Rows that one process has at most.
  Duration timeout = std::chrono::seconds(60);
  Duration start_timeout = std::chrono::minutes(2);
};

struct StagesConfig {
  std::vector<StageConfig> before;  // In order.
  std::vector<StageConfig> after;   // In order.

  bool empty() const { return before.empty() && after.empty(); }
  // First those before the model.
  std::vector<const StageConfig*> all() const;
};

// Declares the keys of `stages`.
void read(ConfigReader& in, StagesConfig& config);
// Names, order and commands: the results depend on them. Numbers of processes and timeouts are not
// in it. Empty: no stages.
std::string identity_of(const StagesConfig& config);
// The command as a person writes it: "python3 clean.py", "judge.py:judge".
std::string command_text(const StageConfig& stage);
// For `pdjob plan`: a line for each stage, or the member `stages`. Nothing if there are none.
std::string plan_text(const StagesConfig& config);
void append_plan(JsonWriter& json, const StagesConfig& config);

}  // namespace pdjob::batch
