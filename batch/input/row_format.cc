#include "batch/input/row_format.h"

#include <algorithm>
#include <utility>

namespace pdjob::batch {

namespace {

constexpr std::pair<std::string_view, RowFormat> kEndings[] = {
    {".csv", RowFormat::kCsv}, {".tsv", RowFormat::kTsv}, {".txt", RowFormat::kText}};

bool ends_with(std::string_view name, std::string_view ending) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
  return name.size() >= ending.size() &&
         std::ranges::equal(name.substr(name.size() - ending.size()), ending, same);
}

}  // namespace

char delimiter_of(RowFormat format) {
  return format == RowFormat::kCsv ? ',' : format == RowFormat::kTsv ? '\t' : '\0';
}

Packing packing_of(std::string_view name) {
  return ends_with(name, ".gz")    ? Packing::kGzip
         : ends_with(name, ".zst") ? Packing::kZstd
                                   : Packing::kNone;
}

RowFormat format_of(std::string_view name, bool has_template) {
  if (packing_of(name) != Packing::kNone) {
    name = name.substr(0, name.rfind('.'));
  }
  for (const auto& [ending, format] : kEndings) {
    if (ends_with(name, ending)) {
      return format;
    }
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
