// ConfigDocument: the text of a config file as a small tree that remembers where everything stands.
// The only door to yaml-cpp.
//
// Bounded while it is built, aliases expanded: no text makes it large, deep or endless. Value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config_errors.h"

namespace pdjob {

struct ConfigEntry;

struct ConfigNode {
  enum class Kind { kNothing, kText, kList, kMapping };

  Kind kind = Kind::kNothing;
  TextPosition position;
  std::string text;                  // kText
  std::vector<ConfigNode> items;     // kList
  std::vector<ConfigEntry> entries;  // kMapping; keys are unique.

  const ConfigEntry* find(std::string_view key) const;
};

struct ConfigEntry {
  std::string key;
  TextPosition key_position;
  ConfigNode value;

  // A missing value has no place of its own.
  TextPosition position() const;
};

// Reads one document that is a mapping. Otherwise nothing: `errors` then holds the one reason. Keys
// that are set twice or are no words are errors too, but the rest can be read.
std::optional<ConfigNode> parse_config_document(const std::string& text, ConfigErrors& errors);

// What the user wrote, for "got ...".
std::string shown(const ConfigNode& node);

// "decode.workers"
std::string join_path(const std::string& path, std::string_view key);

}  // namespace pdjob
