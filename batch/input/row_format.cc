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

Status check_template(const std::string& name, std::optional<RowFormat> format, bool has_template) {
  const bool needed = format.value_or(format_of(name, has_template)) != RowFormat::kOpenAi;
  if (needed == has_template) {
    return ok();
  }
  return Error{ErrorCode::kInvalidArgument,
               needed ? name + ": its rows need a template, which makes requests of them"
                      : name + ": rows in OpenAI's format need no template"};
}

}  // namespace pdjob::batch
