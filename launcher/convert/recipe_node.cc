#include "launcher/convert/recipe_node.h"

#include <algorithm>
#include <utility>

#include "common/parse_number.h"

namespace pdjob::launcher {

using Kind = ConfigNode::Kind;

RecipeNode::RecipeNode(RecipeFile& file, const ConfigNode* node, std::string path,
                       TextPosition position)
    : file_(&file),
      node_(node != nullptr && node->kind != Kind::kNothing ? node : nullptr),
      path_(std::move(path)),
      position_(position) {}

RecipeNode RecipeNode::operator[](std::string_view key) const {
  const ConfigEntry* const entry = is_mapping() ? node_->find(key) : nullptr;
  return {*file_, entry == nullptr ? nullptr : &entry->value, join_path(path_, key),
          entry == nullptr ? position_ : entry->position()};
}

bool RecipeNode::there() const { return node_ != nullptr; }

bool RecipeNode::is_mapping() const { return there() && node_->kind == Kind::kMapping; }

std::vector<std::string> RecipeNode::keys() const {
  std::vector<std::string> keys;
  if (is_mapping()) {
    for (const ConfigEntry& entry : node_->entries) {
      keys.push_back(entry.key);
    }
  } else if (there()) {
    fail("expected a mapping, got " + shown(*node_));
  }
  return keys;
}

std::string RecipeNode::text() const {
  if (there() && node_->kind != Kind::kText) {
    fail("expected text, got " + shown(*node_));
    return {};
  }
  return there() ? node_->text : "";
}

std::optional<uint32_t> RecipeNode::number() const {
  if (!there()) {
    return std::nullopt;
  }
  const auto number =
      node_->kind == Kind::kText ? parse_number<uint16_t>(node_->text) : std::nullopt;
  if (number.value_or(0) == 0) {
    fail("expected a whole number from 1 on, got " + shown(*node_));
    return std::nullopt;
  }
  return *number;
}

std::vector<RecipeNode> RecipeNode::items() const {
  std::vector<RecipeNode> items;
  if (there() && node_->kind != Kind::kList) {
    fail("expected a list, got " + shown(*node_));
    return items;
  }
  for (size_t i = 0; there() && i < node_->items.size(); ++i) {
    items.emplace_back(*file_, &node_->items[i], path_, node_->items[i].position);
  }
  return items;
}

std::vector<std::string> RecipeNode::texts() const {
  std::vector<std::string> texts;
  for (const RecipeNode& item : items()) {
    texts.push_back(item.text());
  }
  return texts;
}

std::map<std::string, std::string> RecipeNode::pairs() const {
  std::map<std::string, std::string> pairs;
  for (const std::string& key : keys()) {
    pairs[key] = (*this)[key].text();
  }
  return pairs;
}

void RecipeNode::know(std::initializer_list<std::string_view> known) const {
  for (const std::string& key : keys()) {
    if (std::ranges::find(known, key) == known.end()) {
      (*this)[key].warn("is not used: pdjob does not know this key");
    }
  }
}

void RecipeNode::fail(const std::string& message) const {
  file_->errors_.add(position_, path_, message);
}

void RecipeNode::warn(const std::string& message) const {
  file_->warnings_.add(position_, path_, message);
}

RecipeFile::RecipeFile(std::string name, const std::string& text)
    : errors_(std::move(name), text), warnings_(errors_) {
  root_ = parse_config_document(text, errors_);
}

RecipeNode RecipeFile::root() { return {*this, root_ ? &*root_ : nullptr, "", {}}; }

}  // namespace pdjob::launcher
