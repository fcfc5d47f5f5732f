#include "batch/input/row_format.h"

namespace pdjob::batch {

Packing packing_of(std::string_view name) {
  return name.ends_with(".gz")    ? Packing::kGzip
         : name.ends_with(".zst") ? Packing::kZstd
                                  : Packing::kNone;
}

RowFormat format_of(std::string_view name, bool has_template) {
  if (packing_of(name) != Packing::kNone) {
    name = name.substr(0, name.rfind('.'));
  }
  if (name.ends_with(".csv")) {
    return RowFormat::kCsv;
  }
  if (name.ends_with(".txt")) {
    return RowFormat::kText;
  }
  return has_template ? RowFormat::kJsonl : RowFormat::kOpenAi;
}

std::optional<RowFormat> parse_row_format(std::string_view word) {
  if (word == "openai") {
    return RowFormat::kOpenAi;
  }
  if (word == "jsonl") {
    return RowFormat::kJsonl;
  }
  if (word == "csv") {
    return RowFormat::kCsv;
  }
  return word == "text" ? std::optional(RowFormat::kText) : std::nullopt;
}

}  // namespace pdjob::batch
