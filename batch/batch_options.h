// BatchOptions: what a person asks of `pdjob batch`. Value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/config/stage_config.h"
#include "batch/input/row_format.h"
#include "batch/store/ledger_file.h"
#include "common/time.h"

namespace pdjob::batch {

enum class Again { kGoOn, kRestart, kRetryFailed };

struct BatchOptions {
  std::vector<std::string> inputs;  // Files; "-" is standard input.
  std::string folder;
  std::optional<RowFormat> format;  // Empty: by the name of each file.
  std::string body_template;        // JSON; empty: rows are OpenAI's.
  std::string endpoint;
  std::string id_column;
  LedgerFile::Order order = LedgerFile::Order::kInput;
  Again again = Again::kGoOn;
  uint64_t concurrency = 0;  // Attempts in flight at most; 0: as many as help.
  size_t first_window = 0;   // Attempts in flight at the beginning; 0: unknown what fits.
  uint32_t attempts = 5;
  // A row fails after so many refusals for overload (429, 503) and broken connections.
  uint32_t losses = 100;
  Duration row_timeout = std::chrono::minutes(10);
  Duration patience = std::chrono::minutes(10);
  // Answers depend on this, too: the text of the job file, or the server's URL.
  std::string job;
  StagesConfig stages;
  std::string stages_folder;  // Their programs start there.
};

}  // namespace pdjob::batch
