// ConfigDocument: the text of a config file as a small tree that remembers each value's position.
// The only door to yaml-cpp.
//
// The tree is bounded while it is built, with aliases expanded: no text makes it large, deep or
// endless. Value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_errors.h"
#include "common/result.h"

namespace pdjob {

struct ConfigEntry;

struct ConfigNode {
  enum class Kind { kNothing, kText, kList, kMapping };

  Kind kind = Kind::kNothing;
  TextPosition position;
  std::string text;                  // kText
  bool bare = false;                 // Of a text that was written: a number, true or false.
  std::vector<ConfigNode> items;     // kList
  std::vector<ConfigEntry> entries;  // kMapping; keys are unique.

  const ConfigEntry* find(std::string_view key) const;
  // `path` is a key of the mapping, or "section.key" below it.
  const ConfigEntry* find_below(std::string_view path) const;
};

struct ConfigEntry {
  std::string key;
  TextPosition key_position;
  ConfigNode value;

  // The position of the key if there is no value.
  TextPosition position() const;
};

// Reads one document, which must be a mapping. On failure it returns nothing, and `errors` holds
// the one reason. A repeated key or a key that is not text is also an error, but the rest is still
// read.
std::optional<ConfigNode> parse_config_document(const std::string& text, ConfigErrors& errors);

// Reads one value of any kind, such as `3`, `[a, b]` or nothing. Fails with kInvalidArgument.
Result<ConfigNode> parse_config_value(const std::string& text);

// Writes a mapping as a text that is read as the same tree, but for the positions.
std::string yaml_of(const ConfigNode& mapping);
// The same in one line, of any node. It is JSON, too.
std::string json_of(const ConfigNode& node);

// The values of a mapping that `others` lacks, or has with another value.
ConfigNode without(const ConfigNode& mapping, const ConfigNode& others);

// A value that differs between two mappings.
struct ConfigDifference {
  std::string path;  // "engine.sequences"
  std::string from;  // Empty: it is not there.
  std::string to;
  friend bool operator==(const ConfigDifference&, const ConfigDifference&) = default;
};
std::vector<ConfigDifference> differences(const ConfigNode& from, const ConfigNode& to);

// Describes the user's value for "got ..." in an error.
std::string shown(const ConfigNode& node);

// Returns "decode.workers" for "decode" and "workers".
std::string join_path(const std::string& path, std::string_view key);

}  // namespace pdjob
