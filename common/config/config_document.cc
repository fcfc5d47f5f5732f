#include "common/config/config_document.h"

#include <algorithm>
#include <exception>
#include <map>
#include <sstream>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "common/config/config_text.h"
#include "common/limits.h"

namespace pdjob {
namespace {

TextPosition position_of(const YAML::Mark& mark) {
  return mark.is_null() ? TextPosition{} : TextPosition{mark.line, mark.column};
}

struct Size {
  size_t nodes = 0;
  size_t text_bytes = 0;
};

Size size_of(const ConfigNode& node) {
  Size size{.nodes = 1, .text_bytes = node.text.size()};
  const auto add = [&size](const ConfigNode& child) {
    const Size more = size_of(child);
    size.nodes += more.nodes;
    size.text_bytes += more.text_bytes;
  };
  for (const ConfigNode& item : node.items) {
    add(item);
  }
  for (const ConfigEntry& entry : node.entries) {
    size.text_bytes += entry.key.size();
    add(entry.value);
  }
  return size;
}

// Builds the tree from yaml-cpp's events. After it refuses one, it ignores later events.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(ConfigErrors& errors) : errors_(errors) {}

  bool refused() const { return refused_; }
  ConfigNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      refuse(position_of(mark), "only one document is allowed in a file");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add_leaf({.position = position_of(mark)}, anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                const std::string& value) override {
    add_leaf({.kind = ConfigNode::Kind::kText, .position = position_of(mark), .text = value},
             anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open({.kind = ConfigNode::Kind::kList, .position = position_of(mark)}, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open({.kind = ConfigNode::Kind::kMapping, .position = position_of(mark)}, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    ConfigNode node;
    YAML::anchor_t anchor = 0;
    std::optional<ConfigNode> key;  // The last key of a mapping; its value comes next.
  };

  void refuse(TextPosition position, const std::string& message) {
    if (!refused_) {
      errors_.replace_by_syntax_error(position, message);
    }
    refused_ = true;
  }
  void add_leaf(ConfigNode node, YAML::anchor_t anchor);
  void open(ConfigNode node, YAML::anchor_t anchor);
  void close();
  void attach(ConfigNode node);
  void attach_entry(ConfigNode& mapping, const ConfigNode& key, ConfigNode value);
  bool count(TextPosition position, size_t nodes);
  bool count_repeated(TextPosition position, const Size& size);
  std::string path() const;

  ConfigErrors& errors_;
  ConfigNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, ConfigNode> anchors_;
  size_t nodes_ = 0;
  size_t repeated_bytes_ = 0;
  int documents_ = 0;
  bool refused_ = false;
};

bool TreeBuilder::count(TextPosition position, size_t nodes) {
  nodes_ += nodes;
  if (nodes_ > limits::kConfigNodesMax) {
    refuse(position, "more than " + std::to_string(limits::kConfigNodesMax) +
                         " values up to here, aliases expanded");
  }
  return !refused_;
}

bool TreeBuilder::count_repeated(TextPosition position, const Size& size) {
  repeated_bytes_ += size.text_bytes;
  if (repeated_bytes_ > limits::kConfigAliasBytesMax) {
    refuse(position, "aliases repeat more than " + std::to_string(limits::kConfigAliasBytesMax) +
                         " bytes of text up to here");
  }
  return count(position, size.nodes);
}

void TreeBuilder::add_leaf(ConfigNode node, YAML::anchor_t anchor) {
  if (!count(node.position, 1)) {
    return;
  }
  if (anchor != 0) {
    anchors_[anchor] = node;
  }
  attach(std::move(node));
}

void TreeBuilder::OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) {
  const auto named = anchors_.find(anchor);
  if (named == anchors_.end()) {
    refuse(position_of(mark), "an alias cannot stand inside what it names");
    return;
  }
  if (count_repeated(position_of(mark), size_of(named->second))) {
    ConfigNode copy = named->second;
    copy.position = position_of(mark);
    attach(std::move(copy));
  }
}

void TreeBuilder::open(ConfigNode node, YAML::anchor_t anchor) {
  if (open_.size() >= limits::kConfigDepthMax) {
    refuse(node.position, "nested more than " + std::to_string(limits::kConfigDepthMax) + " deep");
  }
  if (count(node.position, 1)) {
    open_.push_back({std::move(node), anchor, std::nullopt});
  }
}

void TreeBuilder::close() {
  if (refused_) {
    return;
  }
  Open closed = std::move(open_.back());
  open_.pop_back();
  if (closed.anchor != 0) {
    anchors_[closed.anchor] = closed.node;
  }
  attach(std::move(closed.node));
}

void TreeBuilder::attach(ConfigNode node) {
  if (open_.empty()) {
    root_ = std::move(node);
    return;
  }
  Open& parent = open_.back();
  if (parent.node.kind == ConfigNode::Kind::kList) {
    parent.node.items.push_back(std::move(node));
  } else if (!parent.key) {
    parent.key = std::move(node);
  } else {
    const ConfigNode key = *std::exchange(parent.key, std::nullopt);
    attach_entry(parent.node, key, std::move(node));
  }
}

void TreeBuilder::attach_entry(ConfigNode& mapping, const ConfigNode& key, ConfigNode value) {
  if (key.kind != ConfigNode::Kind::kText) {
    errors_.add(key.position, path(), "a key must be a word, got " + shown(key));
  } else if (const ConfigEntry* first = mapping.find(key.text); first != nullptr) {
    errors_.add(key.position, join_path(path(), key.text),
                "is already set in line " + std::to_string(first->key_position.line + 1));
  } else {
    mapping.entries.push_back({key.text, key.position, std::move(value)});
  }
}

// The path of the innermost open node.
std::string TreeBuilder::path() const {
  std::string path;
  for (const Open& level : open_) {
    if (level.key) {
      path = join_path(path, level.key->text);
    }
  }
  return path;
}

// Nothing: `errors` holds the reason.
std::optional<ConfigNode> parse_any(const std::string& text, ConfigErrors& errors) {
  const auto refuse = [&](TextPosition position, const std::string& message) {
    errors.replace_by_syntax_error(position, message);
    return std::nullopt;
  };
  if (text.size() > limits::kConfigBytesMax) {
    return refuse({},
                  "the file is larger than " + std::to_string(limits::kConfigBytesMax) + " bytes");
  }
  if (text.find('\0') != std::string::npos) {
    return refuse({}, "the file is not UTF-8 text");
  }
  TreeBuilder builder(errors);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    // Two documents are enough to refuse them. YAML::LoadAll would read on, and never ends on some
    // inputs, even of two bytes.
    if (parser.HandleNextDocument(builder) && !builder.refused()) {
      parser.HandleNextDocument(builder);
    }
  } catch (const YAML::Exception& failure) {
    return refuse(position_of(failure.mark), failure.msg);
  } catch (const std::exception& failure) {
    return refuse({}, failure.what());
  }
  if (builder.refused()) {
    return std::nullopt;
  }
  return builder.take_root();
}

void write_flow(const ConfigNode& node, std::string& text) {
  const char* separator = "";
  switch (node.kind) {
    case ConfigNode::Kind::kNothing:
      text += "null";
      return;
    case ConfigNode::Kind::kText:
      text += node.bare ? node.text : double_quoted(node.text);
      return;
    case ConfigNode::Kind::kList:
      text += '[';
      for (const ConfigNode& item : node.items) {
        text += std::exchange(separator, ", ");
        write_flow(item, text);
      }
      text += ']';
      return;
    case ConfigNode::Kind::kMapping:
      text += '{';
      for (const ConfigEntry& entry : node.entries) {
        text.append(std::exchange(separator, ", ")).append(double_quoted(entry.key)).append(": ");
        write_flow(entry.value, text);
      }
      text += '}';
      return;
  }
}

void write_block(const ConfigNode& mapping, const std::string& indent, std::string& text) {
  for (const ConfigEntry& entry : mapping.entries) {
    text.append(indent).append(yaml_text(entry.key)).append(":");
    const bool is_section =
        entry.value.kind == ConfigNode::Kind::kMapping && !entry.value.entries.empty();
    if (is_section) {
      text += '\n';
      write_block(entry.value, indent + "  ", text);
    } else if (entry.value.kind == ConfigNode::Kind::kText) {
      const std::string& word = entry.value.text;
      text.append(" ").append(entry.value.bare ? word : yaml_text(word)).append("\n");
    } else {
      text += ' ';
      write_flow(entry.value, text);
      text += '\n';
    }
  }
}

}  // namespace

const ConfigEntry* ConfigNode::find(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const ConfigEntry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

const ConfigEntry* ConfigNode::find_below(std::string_view path) const {
  const size_t dot = path.find('.');
  const ConfigEntry* const entry = find(path.substr(0, dot));
  return dot == std::string_view::npos || entry == nullptr
             ? entry
             : entry->value.find_below(path.substr(dot + 1));
}

TextPosition ConfigEntry::position() const {
  return value.kind == ConfigNode::Kind::kNothing ? key_position : value.position;
}

std::optional<ConfigNode> parse_config_document(const std::string& text, ConfigErrors& errors) {
  const auto refuse = [&](TextPosition position, const std::string& message) {
    errors.replace_by_syntax_error(position, message);
    return std::nullopt;
  };
  std::optional<ConfigNode> root = parse_any(text, errors);
  if (!root) {
    return std::nullopt;
  }
  if (root->kind == ConfigNode::Kind::kNothing) {
    return refuse({}, "the file is empty");
  }
  if (root->kind != ConfigNode::Kind::kMapping) {
    return refuse(root->position, "expected a mapping, got " + shown(*root));
  }
  return root;
}

Result<ConfigNode> parse_config_value(const std::string& text) {
  ConfigErrors errors("", text);
  std::optional<ConfigNode> value = parse_any(text, errors);
  if (const std::string why = errors.first(); !why.empty()) {
    return Error{ErrorCode::kInvalidArgument, why};
  }
  return *std::move(value);
}

std::string yaml_of(const ConfigNode& mapping) {
  std::string text;
  write_block(mapping, "", text);
  return mapping.entries.empty() ? "{}\n" : text;
}

std::string json_of(const ConfigNode& node) {
  std::string text;
  write_flow(node, text);
  return text;
}

ConfigNode without(const ConfigNode& mapping, const ConfigNode& others) {
  ConfigNode rest{.kind = ConfigNode::Kind::kMapping};
  for (const ConfigEntry& entry : mapping.entries) {
    const ConfigEntry* const other = others.find(entry.key);
    if (entry.value.kind == ConfigNode::Kind::kMapping) {
      ConfigNode below = without(entry.value, other == nullptr ? ConfigNode{} : other->value);
      if (!below.entries.empty()) {
        rest.entries.push_back({.key = entry.key, .value = std::move(below)});
      }
    } else if (other == nullptr || json_of(other->value) != json_of(entry.value)) {
      rest.entries.push_back(entry);
    }
  }
  return rest;
}

std::vector<ConfigDifference> differences(const ConfigNode& from, const ConfigNode& to) {
  std::vector<ConfigDifference> found;
  const auto note = [&](const std::string& key, const ConfigNode* before, const ConfigNode* after) {
    const auto is_mapping = [](const ConfigNode* node) {
      return node != nullptr && node->kind == ConfigNode::Kind::kMapping;
    };
    if (is_mapping(before) || is_mapping(after)) {
      static const ConfigNode none{.kind = ConfigNode::Kind::kMapping};
      for (ConfigDifference& below :
           differences(is_mapping(before) ? *before : none, is_mapping(after) ? *after : none)) {
        below.path = join_path(key, below.path);
        found.push_back(std::move(below));
      }
      return;
    }
    const auto text_of = [](const ConfigNode* node) {
      return node == nullptr                         ? std::string()
             : node->kind == ConfigNode::Kind::kText ? node->text
                                                     : json_of(*node);
    };
    if (text_of(before) != text_of(after)) {
      found.push_back({.path = key, .from = text_of(before), .to = text_of(after)});
    }
  };
  for (const ConfigEntry& entry : from.entries) {
    const ConfigEntry* const other = to.find(entry.key);
    note(entry.key, &entry.value, other == nullptr ? nullptr : &other->value);
  }
  for (const ConfigEntry& entry : to.entries) {
    if (from.find(entry.key) == nullptr) {
      note(entry.key, nullptr, &entry.value);
    }
  }
  return found;
}

std::string shown(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNothing:
      return "nothing";
    case ConfigNode::Kind::kText:
      return quote(node.text);
    case ConfigNode::Kind::kList:
      return "a list";
    case ConfigNode::Kind::kMapping:
      return "a mapping";
  }
  return {};
}

std::string join_path(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : key.empty() ? path : path + "." + std::string(key);
}

}  // namespace pdjob
