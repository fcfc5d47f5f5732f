// RecipeFile and RecipeNode: a YAML file of vLLM's recipes, whose keys nobody here declares. A node
// is a place of the file, whether something stands there or not. Errors and warnings name places,
// in the form of config_reader.h. Loop-bound.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_document.h"
#include "common/config/config_errors.h"

namespace pdjob::launcher {

class RecipeFile;

class RecipeNode {
 public:
  RecipeNode(RecipeFile& file, const ConfigNode* node, std::string path, TextPosition position);

  // The value of a key; the node is where the key would stand.
  RecipeNode operator[](std::string_view key) const;
  bool there() const;
  bool is_mapping() const;
  std::vector<std::string> keys() const;

  // Each reports a value of another kind as an error, and returns nothing then.
  std::string text() const;
  std::optional<uint32_t> number() const;  // From 1 on.
  std::vector<std::string> texts() const;
  std::vector<RecipeNode> items() const;  // Of a list.
  std::map<std::string, std::string> pairs() const;

  // Warns of each key that is not among these.
  void know(std::initializer_list<std::string_view> known) const;
  void fail(const std::string& message) const;
  void warn(const std::string& message) const;

 private:
  RecipeFile* file_;
  const ConfigNode* node_;  // Null: nothing stands there.
  std::string path_;
  TextPosition position_;
};

class RecipeFile {
 public:
  RecipeFile(std::string name, const std::string& text);
  RecipeFile(const RecipeFile&) = delete;  // Nodes point at it.
  RecipeFile& operator=(const RecipeFile&) = delete;
  RecipeFile(RecipeFile&&) = delete;
  RecipeFile& operator=(RecipeFile&&) = delete;
  ~RecipeFile() = default;

  RecipeNode root();
  std::string errors() const { return errors_.text(); }
  std::string warnings() const { return warnings_.warnings(); }

 private:
  friend class RecipeNode;

  ConfigErrors errors_;
  ConfigErrors warnings_;
  std::optional<ConfigNode> root_;
};

}  // namespace pdjob::launcher
