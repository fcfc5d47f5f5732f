#include "common/config/config_settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "common/config/config_document.h"
#include "common/config/config_errors.h"
#include "common/limits.h"

namespace pdjob {
namespace {

struct Part {
  std::string word;
  size_t column;
};

struct Key {
  std::vector<Part> parts;
  size_t value_begin = 0;
  size_t wrong_at = 0;  // If there are no parts.
};

// Reads up to the first `=` that is not in quotes.
Key key_of(std::string_view text) {
  Key key;
  const auto wrong = [&](size_t at) { return Key{.parts = {}, .wrong_at = at}; };
  size_t at = 0;
  while (true) {
    const bool in_quotes = at < text.size() && text[at] == '"';
    const size_t begin = in_quotes ? at + 1 : at;
    size_t end = in_quotes ? text.find('"', begin) : text.find_first_of(".=\"", begin);
    if (end == std::string_view::npos || end == begin) {
      return wrong(std::min(begin, text.size()));
    }
    key.parts.push_back({std::string(text.substr(begin, end - begin)), at});
    end += in_quotes ? 1 : 0;
    if (end >= text.size() || (text[end] != '.' && text[end] != '=')) {
      return wrong(std::min(end, text.size()));
    }
    at = end + 1;
    if (text[end] == '=') {
      key.value_begin = at;
      return key;
    }
  }
}

// Takes a key of the file. pdjob's own keys never hold secrets: they name files that do.
bool is_secret_key(std::string_view key) {
  constexpr std::array<std::string_view, 4> kSecrets = {"key", "token", "secret", "password"};
  constexpr std::array<std::string_view, 5> kEnds = {"_key", "_secret", "_password", "api_token",
                                                     "hf_token"};
  return std::ranges::find(kSecrets, key) != kSecrets.end() ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return key.ends_with(end); });
}

// Takes the name of a variable or a flag: "API_KEY" and "--api-key" are secrets; "KEY_FILE",
// "HF_TOKEN_PATH" and "--max-tokens" are not.
bool names_secret(std::string_view name) {
  constexpr std::array<std::string_view, 8> kSecrets = {
      "key", "apikey", "token", "secret", "password", "passwd", "pass", "credentials"};
  std::string word;
  bool secret = false;
  for (size_t at = 0; at <= name.size(); ++at) {
    const char c = at < name.size() ? name[at] : '-';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (const std::string whole = std::exchange(word, {}); !whole.empty()) {
      secret = secret || std::ranges::find(kSecrets, whole) != kSecrets.end();
      if (at == name.size() && (whole == "file" || whole == "path" || whole == "sha256")) {
        return false;
      }
    }
  }
  return secret;
}

bool is_secret(std::string_view text) {
  constexpr size_t kTokenBytesMin = 20;
  for (const std::string_view prefix : {"whsec_", "Bearer ", "bearer "}) {
    if (text.starts_with(prefix)) {
      return true;
    }
  }
  const bool one_word = text.find_first_of("/. ") == std::string_view::npos;
  if (one_word && text.size() >= kTokenBytesMin &&
      (text.starts_with("sk-") || text.starts_with("hf_"))) {
    return true;
  }
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    const std::string_view host = text.substr(scheme + 3, text.find('/', scheme + 3) - scheme - 3);
    const size_t user_end = host.find('@');
    if (user_end != std::string_view::npos &&
        host.substr(0, user_end).find(':') != std::string_view::npos) {
      return true;
    }
  }
  const size_t equals = text.find('=');
  return (text.starts_with("--") || equals != std::string_view::npos) &&
         names_secret(text.substr(0, equals));
}

// The key of a certificate is a file, in every section of TLS.
bool is_key_file(std::string_view section, std::string_view key) {
  return key == "key" && (section == "tls" || section.ends_with("_tls"));
}

// `name`: the key that the value belongs to.
bool has_secret(const ConfigNode& node, std::string_view name) {
  return is_secret(node.text) ||
         std::ranges::any_of(node.items,
                             [&](const ConfigNode& item) { return has_secret(item, name); }) ||
         std::ranges::any_of(node.entries, [&](const ConfigEntry& entry) {
           return (is_secret_key(entry.key) && !is_key_file(name, entry.key)) ||
                  has_secret(entry.value, entry.key);
         });
}

TextPosition moved(TextPosition position, int source, size_t column) {
  return {.line = position.line,
          .column = position.column + (position.line == 0 ? static_cast<int>(column) : 0),
          .source = source};
}

// The value was read alone; now it stands in its setting.
void move_to(ConfigNode& node, int source, size_t column) {
  node.position = moved(node.position, source, column);
  for (ConfigNode& item : node.items) {
    move_to(item, source, column);
  }
  for (ConfigEntry& entry : node.entries) {
    entry.key_position = moved(entry.key_position, source, column);
    move_to(entry.value, source, column);
  }
}

// Lays one setting over the tree.
class Layer {
 public:
  Layer(ConfigErrors& errors, const ConfigSetting& setting) : errors_(errors), setting_(setting) {}

  void lay_over(ConfigNode& root) {
    key_ = key_of(setting_.text);
    if (key_.parts.empty()) {
      show(setting_.text);
      complain(key_.wrong_at, "", "must be KEY=VALUE, such as decode.workers=2");
      return;
    }
    std::optional<ConfigNode> value = read_value();
    if (!value) {
      return;
    }
    if (ConfigNode* const place = find_place(root)) {
      *place = *std::move(value);
    }
  }

 private:
  void show(const std::string& text) { source_ = errors_.add_source(setting_.flag, text); }

  void complain(size_t column, const std::string& path, const std::string& message) {
    errors_.add({.column = static_cast<int>(column), .source = source_}, path, message);
  }

  std::string path(size_t parts) const {
    std::string path;
    for (size_t i = 0; i < parts; ++i) {
      path = join_path(path, key_.parts[i].word);
    }
    return path;
  }

  std::optional<ConfigNode> read_value() {
    const std::string text = setting_.text.substr(key_.value_begin);
    const auto refuse = [&](const std::string& message) {
      complain(key_.value_begin, path(key_.parts.size()), message);
      return std::nullopt;
    };
    ConfigNode value{.kind = ConfigNode::Kind::kText, .text = text};
    const std::vector<Part>& parts = key_.parts;
    const std::string& key = parts.back().word;
    const std::string section = parts.size() > 1 ? parts[parts.size() - 2].word : "";
    bool secret = is_secret_key(key) && !is_key_file(section, key);
    if (setting_.form == ConfigSetting::Form::kYaml) {
      Result<ConfigNode> read = parse_config_value(text);
      secret = secret || (read ? has_secret(*read, key) : is_secret(text));
      if (!read && !secret) {
        show(setting_.text);
        return refuse(read.error().message);
      }
      value = read ? *std::move(read) : value;
    }
    if (secret) {
      show(setting_.text.substr(0, key_.value_begin) + "...");
      return refuse(
          "looks like a secret, and all users of this machine can read its command lines: write it "
          "into the file, or into a file of its own if there is a key such as key_file");
    }
    show(setting_.text);
    move_to(value, source_, key_.value_begin);
    return value;
  }

  // Makes the sections on the way. Null: an error is reported.
  ConfigNode* find_place(ConfigNode& root) {
    if (key_.parts.size() > limits::kConfigDepthMax) {
      complain(0, "", "nested more than " + std::to_string(limits::kConfigDepthMax) + " deep");
      return nullptr;
    }
    ConfigNode* node = &root;
    for (size_t i = 0; i < key_.parts.size(); ++i) {
      node = node->kind == ConfigNode::Kind::kList ? item_of(*node, i) : value_of(*node, i);
      if (node == nullptr) {
        return nullptr;
      }
    }
    return node;
  }

  ConfigNode* item_of(ConfigNode& list, size_t i) {
    const std::string& word = key_.parts[i].word;
    const char* const end = word.data() + word.size();
    size_t index = 0;
    const auto [stop, failure] = std::from_chars(word.data(), end, index);
    if (stop != end || failure != std::errc() || index > list.items.size()) {
      complain(key_.parts[i].column, path(i),
               "is a list of " + std::to_string(list.items.size()) +
                   ": name one by its place, 0.." + std::to_string(list.items.size()) + ", got " +
                   shown(word));
      return nullptr;
    }
    if (index == list.items.size()) {
      list.items.push_back({.position = position_of(i)});
    }
    return &list.items[index];
  }

  ConfigNode* value_of(ConfigNode& node, size_t i) {
    if (node.kind != ConfigNode::Kind::kMapping) {
      node = {.kind = ConfigNode::Kind::kMapping, .position = position_of(i)};
    }
    const std::string& word = key_.parts[i].word;
    auto entry = std::ranges::find(node.entries, word, &ConfigEntry::key);
    if (entry == node.entries.end()) {
      entry = node.entries.insert(entry, {word, position_of(i), {}});
    } else if (i + 1 == key_.parts.size()) {
      entry->key_position = position_of(i);
    }
    return &entry->value;
  }

  static std::string shown(const std::string& word) {
    return pdjob::shown({.kind = ConfigNode::Kind::kText, .position = {}, .text = word});
  }

  TextPosition position_of(size_t part) const {
    return {.column = static_cast<int>(key_.parts[part].column), .source = source_};
  }

  ConfigErrors& errors_;
  const ConfigSetting& setting_;
  Key key_;
  int source_ = 0;
};

}  // namespace

std::vector<ConfigSetting> settings_of(const std::vector<std::string>& texts) {
  std::vector<ConfigSetting> settings;
  for (const std::string& text : texts) {
    settings.push_back({.text = text});
  }
  return settings;
}

void lay_over(ConfigNode& root, const std::vector<ConfigSetting>& settings, ConfigErrors& errors) {
  for (const ConfigSetting& setting : settings) {
    Layer(errors, setting).lay_over(root);
  }
}

}  // namespace pdjob
