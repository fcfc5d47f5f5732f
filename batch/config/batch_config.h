// BatchConfig: the section `batch` of a job file. The flags of `pdjob batch` are the same keys, and
// win over it. Value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/config/stage_config.h"
#include "batch/input/row_format.h"
#include "batch/store/ledger_file.h"
#include "common/config/config_reader.h"
#include "common/result.h"
#include "common/time.h"

namespace pdjob::batch {

constexpr const char* kStandardInput = "-";  // As an input; only of the command line.

struct BatchConfig {
  std::vector<std::string> inputs;  // Files, patterns such as "rows/*.jsonl", kStandardInput.
  std::string out;                  // The folder for results.
  std::optional<RowFormat> format;  // Empty: by the name of each file.
  std::string body_template;        // JSON, or the path of the file that has it.
  std::string endpoint;             // Of a template; empty: what it looks like.
  std::string id_column;            // Empty: row-1, row-2, ...
  LedgerFile::Order order = LedgerFile::Order::kInput;
  uint32_t concurrency = 0;  // Attempts in flight at most; 0: as many as help.
  uint32_t attempts = 5;     // At which the server fails; then the row fails.
  Duration row_timeout = std::chrono::minutes(10);
  Duration patience = std::chrono::minutes(10);
  std::string key_file;  // The API key that the server wants; empty: none.
  StagesConfig stages;
};

// Declares the keys of `batch:`.
void read(ConfigReader& in, BatchConfig& config);
// Reports what the section of a job file of mode batch lacks.
void check_complete(ConfigReader& in, const BatchConfig& config);

// A template that is JSON itself, not the name of a file.
bool is_template_text(std::string_view word);
// The files that the patterns mean, in the order of the inputs, and of names. kInvalidArgument: a
// pattern means none. It accesses the file system.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& inputs);

}  // namespace pdjob::batch
