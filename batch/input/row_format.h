// RowFormat: what the rows of an input file are. Values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/packing/unpacker.h"
#include "common/result.h"

namespace pdjob::batch {

// The ledger stores these numbers.
enum class RowFormat {
  kOpenAi = 0,  // OpenAI's batch file: {"custom_id", "method", "url", "body"} on each line.
  kJsonl = 1,   // An object on each line, for a template.
  kCsv = 2,     // The first record names the columns.
  kText = 3,    // A text on each line.
  kTsv = 4,     // CSV with tabs.
};

// What parts the fields of a record; 0: rows are lines.
char delimiter_of(RowFormat format);

// By the end of the name, in capitals or not. `has_template`: JSON lines are for it.
RowFormat format_of(std::string_view name, bool has_template);
Packing packing_of(std::string_view name);

// `format`: as chosen for all files; empty: by the name. kInvalidArgument: such rows need a
// template and there is none, or the other way round. The message begins with the name.
Status check_template(const std::string& name, std::optional<RowFormat> format, bool has_template);

}  // namespace pdjob::batch
