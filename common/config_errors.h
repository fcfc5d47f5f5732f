// ConfigErrors: what is wrong with a config file, each error at its place in the text. Knows no
// YAML. Value.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob {

// Zero-based; the column counts bytes.
struct TextPosition {
  int line = 0;
  int column = 0;

  friend auto operator<=>(const TextPosition&, const TextPosition&) = default;
};

class ConfigErrors {
 public:
  ConfigErrors() = default;
  ConfigErrors(std::string name, std::string_view text);

  // `path` is the key, "decode.workers"; empty: the file as a whole. The same error twice (seen
  // through an alias) is one.
  void add(TextPosition position, const std::string& path, const std::string& message);
  // The text cannot be read: drops what was found before, and names tabs, which parsers notice late
  // and as something else.
  void replace_by_syntax_error(TextPosition position, const std::string& message);

  // All of them in order of position, each with its line and a caret; empty: none.
  std::string text() const;

 private:
  struct Entry {
    TextPosition position;
    std::string path;
    std::string message;

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  std::string render(const Entry& entry) const;
  std::string excerpt(TextPosition position) const;

  std::string name_;
  std::vector<std::string> lines_;
  std::set<Entry> entries_;
};

}  // namespace pdjob
