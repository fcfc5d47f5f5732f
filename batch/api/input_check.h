// The check of a batch's input before anything runs: OpenAI's API refuses a whole batch if one line
// of it is wrong. Calls block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace pdjob::batch {

struct InputError {
  std::string code;
  std::string message;
  uint64_t line = 0;  // 0: of the whole file.
};

struct InputFacts {
  std::vector<InputError> errors;  // The first ones; empty: it can run.
  uint64_t rows = 0;
  std::string model;  // Empty: rows have several, or none.
};

inline constexpr size_t kInputErrorsMax = 100;

struct InputRules {
  std::string endpoint;  // Of all rows.
  uint64_t rows_max = 0;
};

// Reads the file once, in bounded memory. It does not find equal custom_ids: the ledger does.
// kUnavailable: the file cannot be read.
Result<InputFacts> check_input(const std::string& path, const InputRules& rules);

// The `data` of a batch's errors: JSON objects with commas between them.
std::string errors_text(const std::vector<InputError>& errors);

}  // namespace pdjob::batch
