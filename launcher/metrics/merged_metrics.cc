#include "launcher/metrics/merged_metrics.h"

#include <algorithm>

#include "common/limits.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kLineBytesMax = 8 * limits::kKiB;
constexpr std::string_view kLabel = "process";

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

// The name that the text begins with; empty: none.
std::string_view name_of(std::string_view text) {
  if (text.empty() || !begins_name(text.front())) {
    return {};
  }
  const auto end = std::ranges::find_if_not(
      text, [](char c) { return begins_name(c) || (c >= '0' && c <= '9'); });
  return text.substr(0, static_cast<size_t>(end - text.begin()));
}

// Reads `name="value"` pairs up to '}', and appends them without the braces. A label of the name
// that is added here becomes exported_NAME, as in Prometheus. False: they are not in the format.
bool read_labels(std::string_view& rest, std::string& out) {
  rest.remove_prefix(1);
  while (!rest.starts_with('}')) {
    const std::string_view name = name_of(rest);
    rest.remove_prefix(name.size());
    if (name.empty() || !rest.starts_with("=\"")) {
      return false;
    }
    size_t end = 2;
    while (end < rest.size() && rest[end] != '"') {
      end += rest[end] == '\\' ? 2 : 1;
    }
    if (end >= rest.size()) {
      return false;
    }
    out.append(",").append(name == kLabel ? "exported_" : "").append(name);
    out.append(rest.substr(0, end + 1));
    rest.remove_prefix(end + 1);
    if (rest.starts_with(',')) {
      rest.remove_prefix(1);
    } else if (!rest.starts_with('}')) {
      return false;
    }
  }
  rest.remove_prefix(1);
  return true;
}

// " 1.5", " +Inf", or with a timestamp behind it.
bool is_value(std::string_view text) {
  return text.size() > 1 && text.front() == ' ' && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') ||
                  std::string_view(" +-.eEInfNa").find(c) != std::string_view::npos;
         });
}

}  // namespace

void MergedMetrics::add(std::string_view process, std::string_view page) {
  std::string family;
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    std::string_view line = page.substr(0, end);
    page.remove_prefix(std::min(end + 1, page.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty() || line.size() > kLineBytesMax) {
      continue;
    }
    if (line.starts_with('#')) {
      add_comment(line, family);
    } else {
      add_sample(process, line, family);
    }
  }
}

void MergedMetrics::add_comment(std::string_view line, std::string& family) {
  for (const std::string_view word : {"# HELP ", "# TYPE "}) {
    if (!line.starts_with(word)) {
      continue;
    }
    const std::string_view rest = line.substr(word.size());
    const std::string_view name = name_of(rest);
    if (name.empty() || !rest.substr(name.size()).starts_with(' ') || !take(line.size() + 1)) {
      return;
    }
    family = name;
    Family& known = families_[family];
    std::string& text = word[2] == 'H' ? known.help : known.type;
    if (text.empty()) {
      text = line;
    }
  }
}

void MergedMetrics::add_sample(std::string_view process, std::string_view line,
                               const std::string& family) {
  const std::string_view name = name_of(line);
  std::string_view rest = line.substr(name.size());
  std::string labels;
  if (name.empty() || (rest.starts_with('{') && !read_labels(rest, labels)) || !is_value(rest)) {
    return;
  }
  // A histogram's samples are named NAME_bucket, NAME_sum and NAME_count.
  const bool belongs = !family.empty() && name.starts_with(family);
  std::string sample(name);
  sample.append("{").append(kLabel).append("=\"").append(process).append("\"");
  sample.append(labels).append("}").append(rest).append("\n");
  if (take(sample.size())) {
    families_[belongs ? family : std::string(name)].samples += sample;
  }
}

bool MergedMetrics::take(size_t bytes) {
  if (bytes > bytes_left_) {
    return false;
  }
  bytes_left_ -= bytes;
  return true;
}

std::string MergedMetrics::text() const {
  std::string out;
  for (const auto& [name, family] : families_) {
    if (family.samples.empty()) {
      continue;
    }
    for (const std::string* line : {&family.help, &family.type}) {
      out.append(*line).append(line->empty() ? "" : "\n");
    }
    out += family.samples;
  }
  return out;
}

}  // namespace pdjob::launcher
