#include "common/config/config_errors.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/config/config_text.h"

namespace pdjob {
namespace {

constexpr size_t kErrorsShownMax = 50;
constexpr size_t kLineShownMax = 200;
constexpr size_t kPathShownMax = 200;

bool is_control(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }
// True for every byte of a UTF-8 character except the first.
bool continues_character(char c) { return (static_cast<unsigned char>(c) >> 6U) == 2; }

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else if (c != '\r') {
      lines.back() += is_control(c) ? '?' : c;
    }
  }
  return lines;
}

}  // namespace

ConfigErrors::ConfigErrors(std::string name, std::string_view text)
    : sources_{{std::move(name), split_lines(text)}} {}

int ConfigErrors::add_source(std::string name, std::string_view text) {
  sources_.push_back({std::move(name), split_lines(text)});
  return static_cast<int>(sources_.size()) - 1;
}

ConfigErrors ConfigErrors::without_errors() const {
  ConfigErrors copy = *this;
  copy.entries_.clear();
  return copy;
}

void ConfigErrors::add(TextPosition position, const std::string& path, const std::string& message) {
  entries_.insert({position, path, message});
}

void ConfigErrors::replace_by_syntax_error(TextPosition position, const std::string& message) {
  entries_.clear();
  const std::vector<std::string>& lines = sources_.front().lines;
  for (int line = 0; line <= position.line && line < static_cast<int>(lines.size()); ++line) {
    const std::string& source = lines[static_cast<size_t>(line)];
    const size_t first = source.find_first_not_of(' ');
    if (first != std::string::npos && source[first] == '\t') {
      add({line, static_cast<int>(first)}, "", "indent with spaces, not with tabs");
      return;
    }
  }
  add(position, "", message);
}

std::string ConfigErrors::first() const {
  return entries_.empty() ? "" : entries_.begin()->message;
}

std::string ConfigErrors::text() const {
  std::string text;
  size_t shown = 0;
  for (const Entry& entry : entries_) {
    if (++shown > kErrorsShownMax) {
      return text + sources_.front().name + ": and " +
             std::to_string(entries_.size() - kErrorsShownMax) + " more errors\n";
    }
    text += render(entry, "") + excerpt(entry.position);
  }
  return text;
}

std::string ConfigErrors::warnings() const {
  std::string text;
  for (const Entry& entry : entries_) {
    text += render(entry, "warning: ");
  }
  return text;
}

std::string ConfigErrors::render(const Entry& entry, const char* label) const {
  const auto& [position, path, message] = entry;
  const std::string place = position.source == 0 ? ':' + std::to_string(position.line + 1) + ':' +
                                                       std::to_string(position.column + 1)
                                                 : "";
  return sources_[static_cast<size_t>(position.source)].name + place + ": " + label +
         (path.empty() ? "" : printable(path, kPathShownMax) + ": ") + message + '\n';
}

// The line and a caret below the position. Empty if the line is missing, empty or too long.
std::string ConfigErrors::excerpt(TextPosition position) const {
  const std::vector<std::string>& lines = sources_[static_cast<size_t>(position.source)].lines;
  const auto line = static_cast<size_t>(position.line);
  const auto column = static_cast<size_t>(position.column);
  if (line >= lines.size() || lines[line].empty() || lines[line].size() > kLineShownMax) {
    return {};
  }
  const std::string& source = lines[line];
  std::string margin;
  for (const char c : source.substr(0, std::min(column, source.size()))) {
    if (!continues_character(c)) {
      margin += c == '\t' ? '\t' : ' ';
    }
  }
  return "    " + source + "\n    " + margin + "^\n";
}

}  // namespace pdjob
