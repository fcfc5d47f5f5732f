// ConfigErrors: the errors of a config file and of settings laid over it, each with its position in
// the text. Independent of YAML. Value.
#pragma once

#include <compare>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace pdjob {

// Line and column are zero-based; the column counts bytes.
struct TextPosition {
  int line = 0;
  int column = 0;
  int source = 0;  // 0: the file; else what add_source() returned.

  friend std::strong_ordering operator<=>(const TextPosition& a, const TextPosition& b) {
    return std::tie(a.source, a.line, a.column) <=> std::tie(b.source, b.line, b.column);
  }
  friend bool operator==(const TextPosition&, const TextPosition&) = default;
};

class ConfigErrors {
 public:
  ConfigErrors() = default;
  ConfigErrors(std::string name, std::string_view text);
  // Adds a text beside the file: errors show it as `name`, without line and column.
  int add_source(std::string name, std::string_view text);
  // The same sources, without errors.
  ConfigErrors without_errors() const;

  // `path` is the key, such as "decode.workers"; empty means the whole file. An error added twice,
  // through an alias, counts once.
  void add(TextPosition position, const std::string& path, const std::string& message);
  // The text cannot be parsed: this replaces all earlier errors. If a line up to `position` is
  // indented with a tab, the error names the tab: parsers notice tabs late, and call them something
  // else.
  void replace_by_syntax_error(TextPosition position, const std::string& message);

  // The first message alone; empty without errors.
  std::string first() const;
  // The errors in order of position, each with its line and a caret. Empty without errors.
  std::string text() const;
  // The same as warnings: one line each, without the source.
  std::string warnings() const;

 private:
  struct Entry {
    TextPosition position;
    std::string path;
    std::string message;

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  // `label`: "warning: ", or empty.
  std::string render(const Entry& entry, const char* label) const;
  std::string excerpt(TextPosition position) const;

  struct Source {
    std::string name;
    std::vector<std::string> lines;
  };
  std::vector<Source> sources_ = std::vector<Source>(1);  // The file is the first one.
  std::set<Entry> entries_;
};

}  // namespace pdjob
