#include "common/config/config_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include "common/check.h"
#include "common/config/config_document.h"
#include "common/config/config_errors.h"
#include "common/config/config_text.h"
#include "common/config/config_values.h"
#include "common/parse_number.h"

namespace pdjob {
namespace {

// The declarations and the text of one section. Several readers may declare parts of the same
// section.
struct Section {
  std::string doc;
  std::vector<ConfigEntry> entries;
  std::vector<std::string> keys;
  std::string table;
};

std::string with_suggestion(const std::string& message, std::string_view written,
                            const std::vector<std::string>& known) {
  const std::string meant = nearest_word(written, known);
  return meant.empty() ? message : message + ", did you mean " + meant + "?";
}

bool is_whole_number(std::string_view text) {
  text.remove_prefix(text.starts_with('-') ? 1 : 0);
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

struct ConfigReader::State {
  // The mapping being read, or the position where it would be.
  struct Frame {
    std::string path;
    TextPosition position;
    const ConfigNode* mapping;
  };

  ConfigErrors errors;
  ConfigErrors warnings;
  std::optional<ConfigNode> root;  // Nothing: the text cannot be parsed, so only that is reported.
  bool describing = false;
  bool writing = false;
  ConfigNode values{.kind = ConfigNode::Kind::kMapping};  // Of a writing reader.
  ConfigNode* into = &values;                             // The mapping of the current section.
  std::filesystem::path folder;                           // Of the file.
  std::string whole_text;
  std::vector<Frame> frames;
  std::map<std::string, Section> sections;
  std::vector<std::string> section_order;

  Frame& frame() { return frames.back(); }

  void enter(const std::string& path, TextPosition position, const ConfigNode& mapping,
             const std::string& doc) {
    frames.push_back({path, position, &mapping});
    const auto [section, is_new] = sections.try_emplace(path);
    if (is_new) {
      section->second.doc = doc;
      section->second.entries = mapping.entries;
      section_order.push_back(path);
    }
  }

  std::string from_folder(const std::string& path) const {
    return path.empty() || path.starts_with('~') ? path : (folder / path).string();
  }
  // Where the line and the column are in the text.
  size_t offset_of(TextPosition position) const {
    size_t begin = 0;
    for (int line = 0; line < position.line; ++line) {
      begin = std::min(whole_text.find('\n', begin), whole_text.size() - 1) + 1;
    }
    return std::min(begin + static_cast<size_t>(position.column), whole_text.size());
  }

  // The value of this key in the current section, which a writing reader fills.
  ConfigNode& written_at(std::string_view key) {
    const auto found =
        std::ranges::find_if(into->entries, [&](const ConfigEntry& one) { return one.key == key; });
    return found != into->entries.end()
               ? found->value
               : into->entries.emplace_back(ConfigEntry{.key = std::string(key)}).value;
  }
  // Takes the value; false: the reader does not write.
  bool put(std::string_view key, const std::string& text, bool bare) {
    if (writing) {
      written_at(key) = {.kind = ConfigNode::Kind::kText, .text = text, .bare = bare};
    }
    return writing;
  }
  // Takes what `body` writes below this key.
  template <class Body>
  void put_section(ConfigNode& below, const Body& body) {
    below.kind = ConfigNode::Kind::kMapping;
    ConfigNode* const outer = std::exchange(into, &below);
    body();
    into = outer;
  }

  void complain(const ConfigEntry& entry, const std::string& message) {
    errors.add(entry.position(), join_path(frame().path, entry.key), message);
  }

  // Records the declaration. Returns the user's entry, or null without one.
  const ConfigEntry* declare(std::string_view key, const std::string& type,
                             const std::string& standard, const std::string& bounds,
                             const FieldText& text);
  // The same for a value written as one word; null also if it is not one word.
  const ConfigEntry* declare_word(std::string_view key, const std::string& type,
                                  const std::string& standard, const std::string& bounds,
                                  const FieldText& text, const char* expected);
  template <class T>
  void whole_number(std::string_view key, T& value, const FieldText& text, FieldRange<T> range);
  template <class T>
  void take_in_range(const ConfigEntry& entry, T parsed, FieldRange<T> range, T& value);
  void refuse_unknown_keys();
};

const ConfigEntry* ConfigReader::State::declare(std::string_view key, const std::string& type,
                                                const std::string& standard,
                                                const std::string& bounds, const FieldText& text) {
  if (!root) {
    return nullptr;
  }
  Section& section = sections[frame().path];
  if (std::find(section.keys.begin(), section.keys.end(), key) == section.keys.end()) {
    section.keys.emplace_back(key);
    if (describing) {
      const std::string unit = *text.unit == '\0' ? "" : std::string(", ") + text.unit;
      const std::string value = standard.empty() ? "" : '`' + standard + '`';
      section.table += "| `" + std::string(key) + "` | " + type + unit + " | " + value + " | " +
                       bounds + " | " + text.doc + " |\n";
    }
  }
  return frame().mapping->find(key);
}

const ConfigEntry* ConfigReader::State::declare_word(std::string_view key, const std::string& type,
                                                     const std::string& standard,
                                                     const std::string& bounds,
                                                     const FieldText& text, const char* expected) {
  const ConfigEntry* entry = declare(key, type, standard, bounds, text);
  if (entry != nullptr && entry->value.kind != ConfigNode::Kind::kText) {
    complain(*entry, std::string("expected ") + expected + ", got " + shown(entry->value));
    return nullptr;
  }
  return entry;
}

template <class T>
void ConfigReader::State::take_in_range(const ConfigEntry& entry, T parsed, FieldRange<T> range,
                                        T& value) {
  if (parsed < range.min || parsed > range.max) {
    complain(entry, "must be " + bounds_text(range) + ", got " + printable(entry.value.text, 40));
    return;
  }
  value = parsed;
}

template <class T>
void ConfigReader::State::whole_number(std::string_view key, T& value, const FieldText& text,
                                       FieldRange<T> range) {
  if (put(key, format(value), true)) {
    return;
  }
  constexpr const char* kType = "whole number";
  const ConfigEntry* entry =
      declare_word(key, kType, format(value), bounds_text(range), text, "a whole number");
  if (entry == nullptr) {
    return;
  }
  const bool bytes = std::string_view(text.unit) == "bytes";
  const std::string written = bytes ? in_bytes(entry->value.text) : entry->value.text;
  const auto parsed = parse_number<uint64_t>(written);
  if (!is_whole_number(written)) {
    complain(*entry, std::string("expected ") +
                         (bytes ? "bytes, such as 8GiB or 8589934592" : "a whole number") +
                         ", got " + quote(written));
  } else if (!parsed || *parsed > std::numeric_limits<T>::max()) {
    const std::string bounds = format(range.min) + ".." + format(range.max);
    complain(*entry, "must be " + bounds + ", got " + printable(written, 40));
  } else {
    take_in_range(*entry, static_cast<T>(*parsed), range, value);
  }
}

void ConfigReader::State::refuse_unknown_keys() {
  for (const auto& [path, section] : sections) {
    for (const ConfigEntry& entry : section.entries) {
      if (std::find(section.keys.begin(), section.keys.end(), entry.key) == section.keys.end()) {
        errors.add(entry.key_position, join_path(path, entry.key),
                   with_suggestion("unknown key", entry.key, section.keys));
      }
    }
  }
}

ConfigReader::ConfigReader(std::unique_ptr<State> state) : state_(std::move(state)) {
  if (state_->root) {
    state_->enter("", state_->root->position, *state_->root, "");
  }
}
ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader& ConfigReader::operator=(ConfigReader&&) noexcept = default;
ConfigReader::~ConfigReader() = default;

ConfigReader ConfigReader::parse(std::string name, std::string text,
                                 const std::vector<ConfigSetting>& settings) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) {
    text.erase(0, kByteOrderMark.size());
  }
  auto state = std::make_unique<State>();
  state->folder = std::filesystem::path(name).parent_path();
  state->errors = ConfigErrors(std::move(name), text);
  state->root = parse_config_document(text, state->errors);
  if (state->root) {
    lay_over(*state->root, settings, state->errors);
  }
  state->warnings = state->errors.without_errors();
  state->whole_text = std::move(text);
  return ConfigReader(std::move(state));
}

ConfigReader ConfigReader::write() {
  auto state = std::make_unique<State>();
  state->writing = true;
  state->root = ConfigNode{.kind = ConfigNode::Kind::kMapping};
  return ConfigReader(std::move(state));
}

ConfigReader ConfigReader::describe() {
  auto state = std::make_unique<State>();
  state->describing = true;
  state->root = ConfigNode{.kind = ConfigNode::Kind::kMapping};
  return ConfigReader(std::move(state));
}

void ConfigReader::field(std::string_view key, bool& value, FieldText text) {
  if (state_->put(key, format(value), true)) {
    return;
  }
  constexpr const char* kType = "true or false";
  const ConfigEntry* entry = state_->declare_word(key, kType, format(value), "", text, kType);
  if (entry == nullptr) {
    return;
  }
  const std::string& written = entry->value.text;
  if (written != "true" && written != "false") {
    state_->complain(*entry, "expected true or false, got " + quote(written));
    return;
  }
  value = written == "true";
}

void ConfigReader::portion(std::string_view key, uint32_t& hundredths, FieldText text) {
  const auto shown = [](uint32_t value) {
    return value % 100 == 0 ? format(value != 0) : portion_text(value);
  };
  if (state_->put(key, shown(hundredths), true)) {
    return;
  }
  constexpr const char* kType = "true, false, or a part such as 0.5";
  const ConfigEntry* entry = state_->declare_word(key, kType, shown(hundredths), "", text, kType);
  if (entry == nullptr) {
    return;
  }
  const std::string& written = entry->value.text;
  const auto part = written == "true"    ? std::optional(100U)
                    : written == "false" ? std::optional(0U)
                                         : parse_portion(written);
  if (!part) {
    state_->complain(*entry,
                     "expected true, false, or a part from 0.01 to 1 with at most two "
                     "decimals, got " +
                         quote(written));
    return;
  }
  hundredths = *part;
}

void ConfigReader::path(std::string_view key, std::string& value, FieldText text,
                        std::string_view ending) {
  const auto is_path = [&] {
    return ending.empty() || value.find('/') != std::string::npos || value.ends_with(ending);
  };
  if (state_->put(key, is_path() ? absolute_path(value) : value, false)) {
    return;
  }
  field(key, value, text);
  if (has(key) && is_path()) {
    value = state_->from_folder(value);
  }
}

void ConfigReader::paths(std::string_view key, std::vector<std::string>& value, FieldText text) {
  if (!state_->writing) {
    field(key, value, text);
    if (has(key)) {
      std::ranges::transform(value, value.begin(),
                             [this](const std::string& path) { return state_->from_folder(path); });
    }
    return;
  }
  std::vector<std::string> paths;
  std::ranges::transform(value, std::back_inserter(paths), absolute_path);
  field(key, paths, text);
}

void ConfigReader::field(std::string_view key, std::string& value, FieldText text) {
  if (state_->put(key, value, false)) {
    return;
  }
  const ConfigEntry* entry = state_->declare_word(key, "text", format(value), "", text, "text");
  if (entry != nullptr) {
    value = entry->value.text;
  }
}

void ConfigReader::field(std::string_view key, uint16_t& value, FieldText text,
                         FieldRange<uint16_t> range) {
  state_->whole_number(key, value, text, range);
}
void ConfigReader::field(std::string_view key, uint32_t& value, FieldText text,
                         FieldRange<uint32_t> range) {
  state_->whole_number(key, value, text, range);
}
void ConfigReader::field(std::string_view key, uint64_t& value, FieldText text,
                         FieldRange<uint64_t> range) {
  state_->whole_number(key, value, text, range);
}

void ConfigReader::field(std::string_view key, double& value, FieldText text,
                         FieldRange<double> range) {
  if (state_->put(key, format(value), true)) {
    return;
  }
  const ConfigEntry* entry =
      state_->declare_word(key, "number", format(value), bounds_text(range), text, "a number");
  if (entry == nullptr) {
    return;
  }
  const std::string& written = entry->value.text;
  const char* end = written.data() + written.size();
  double parsed = 0;
  const auto [stop, failure] = std::from_chars(written.data(), end, parsed);
  if (failure != std::errc() || stop != end || !std::isfinite(parsed)) {
    state_->complain(*entry, "expected a number, got " + quote(written));
    return;
  }
  state_->take_in_range(*entry, parsed, range, value);
}

void ConfigReader::field(std::string_view key, Duration& value, FieldText text,
                         FieldRange<Duration> range) {
  if (state_->put(key, format(value), false)) {
    return;
  }
  constexpr const char* kExpected = "a duration such as 250ms, 5s, 10min or 2h";
  const ConfigEntry* entry =
      state_->declare_word(key, "duration", format(value), bounds_text(range), text, kExpected);
  if (entry == nullptr) {
    return;
  }
  const std::optional<Duration> parsed = parse_duration(entry->value.text);
  if (!parsed) {
    state_->complain(*entry,
                     std::string("expected ") + kExpected + ", got " + quote(entry->value.text));
    return;
  }
  state_->take_in_range(*entry, *parsed, range, value);
}

void ConfigReader::field(std::string_view key, std::vector<std::string>& value, FieldText text) {
  if (state_->writing) {
    ConfigNode list{.kind = ConfigNode::Kind::kList};
    for (const std::string& item : value) {
      list.items.push_back({.kind = ConfigNode::Kind::kText, .text = item});
    }
    state_->written_at(key) = std::move(list);
    return;
  }
  const ConfigEntry* entry = state_->declare(key, "list of texts", format(value), "", text);
  if (entry == nullptr) {
    return;
  }
  if (entry->value.kind != ConfigNode::Kind::kList) {
    state_->complain(*entry, "expected a list, got " + shown(entry->value));
    return;
  }
  std::vector<std::string> items;
  for (const ConfigNode& item : entry->value.items) {
    if (item.kind != ConfigNode::Kind::kText) {
      state_->complain(*entry, "expected a list of texts, got " + shown(item) + " in it");
      return;
    }
    items.push_back(item.text);
  }
  value = std::move(items);
}

void ConfigReader::choice(std::string_view key, size_t& index, std::span<const char* const> words,
                          FieldText text) {
  if (state_->put(key, words[index], false)) {
    return;
  }
  std::string type = "one of ";
  for (const char* word : words) {
    type += (word == words.front() ? "" : ", ") + std::string(word);
  }
  const ConfigEntry* entry = state_->declare_word(key, type, words[index], "", text, type.c_str());
  if (entry == nullptr) {
    return;
  }
  const std::string& written = entry->value.text;
  const auto found = std::find(words.begin(), words.end(), written);
  if (found == words.end()) {
    state_->complain(*entry, with_suggestion("expected " + type + ", got " + quote(written),
                                             written, {words.begin(), words.end()}));
    return;
  }
  index = static_cast<size_t>(found - words.begin());
}

void ConfigReader::section(std::string_view key, FieldText text,
                           const std::function<void(ConfigReader&)>& body) {
  if (state_->writing) {
    state_->put_section(state_->written_at(key), [&] { body(*this); });
    return;
  }
  const ConfigEntry* entry = state_->declare(key, "section", "", "", text);
  if (!state_->root) {
    return;
  }
  static const ConfigNode absent{.kind = ConfigNode::Kind::kMapping};
  const ConfigNode* mapping = &absent;
  TextPosition position = state_->frame().position;
  if (entry != nullptr) {
    position = entry->key_position;
    // A key without a value: all lines of its section are commented out.
    if (entry->value.kind == ConfigNode::Kind::kMapping) {
      mapping = &entry->value;
    } else if (entry->value.kind != ConfigNode::Kind::kNothing) {
      state_->complain(*entry, "expected a mapping, got " + shown(entry->value));
    }
  }
  state_->enter(join_path(state_->frame().path, key), position, *mapping, text.doc);
  body(*this);
  state_->frames.pop_back();
}

void ConfigReader::named_sections(
    std::string_view key, FieldText text,
    const std::function<void(const std::string& name, ConfigReader&)>& body,
    const std::vector<std::string>& present) {
  if (state_->writing) {
    ConfigNode standard;
    state_->put_section(standard, [&] { body("", *this); });
    for (const std::string& name : present) {
      ConfigNode one;
      state_->put_section(one, [&] { body(name, *this); });
      ConfigNode& all = state_->written_at(key);
      all.kind = ConfigNode::Kind::kMapping;
      all.entries.push_back({.key = name, .value = without(one, standard)});
    }
    return;
  }
  section(key, text, [&](ConfigReader& in) {
    std::vector<std::string> names = written_keys();
    if (state_->describing) {
      names.emplace_back("NAME");
    }
    for (const std::string& name : names) {
      in.section(name, {"One of them."}, [&](ConfigReader& one) { body(name, one); });
    }
  });
}

void ConfigReader::report(ConfigErrors& into, std::string_view key, const std::string& message) {
  if (!state_->root || state_->describing || state_->writing) {
    return;
  }
  const State::Frame& frame = state_->frame();
  const ConfigEntry* entry = frame.mapping->find_below(key);
  // The errors of another file end their last line.
  const std::string text = message.substr(0, message.find_last_not_of('\n') + 1);
  into.add(entry == nullptr ? frame.position : entry->position(), join_path(frame.path, key), text);
}

void ConfigReader::fail(std::string_view key, const std::string& message) {
  report(state_->errors, key, message);
}

void ConfigReader::warn(std::string_view key, const std::string& message) {
  report(state_->warnings, key, message);
}

std::string ConfigReader::warnings() const { return state_->warnings.warnings(); }

void ConfigReader::moved(std::string_view key, std::string_view to) {
  if (!state_->root || state_->describing || state_->writing) {
    return;
  }
  if (const ConfigEntry* entry = state_->declare(key, "", "", "", {})) {
    state_->complain(*entry, "has moved: write " + std::string(to));
  }
}

bool ConfigReader::has(std::string_view key) const {
  return state_->root && state_->frame().mapping->find_below(key) != nullptr;
}

std::string ConfigReader::written(std::string_view key) const {
  const ConfigEntry* entry = state_->root ? state_->frame().mapping->find_below(key) : nullptr;
  return entry == nullptr ? "" : entry->value.text;
}

std::vector<std::string> ConfigReader::keys() const {
  if (!state_->root) {
    return {};
  }
  std::vector<std::string> written = state_->sections[state_->frame().path].keys;
  std::erase_if(written, [this](const std::string& key) { return !has(key); });
  return written;
}

std::string ConfigReader::text_without(std::string_view key) const {
  const ConfigEntry* const entry = state_->root ? state_->root->find(key) : nullptr;
  if (entry == nullptr) {
    return state_->whole_text;
  }
  size_t end = state_->whole_text.size();
  for (const ConfigEntry& other : state_->root->entries) {
    if (other.key_position > entry->key_position) {
      end = std::min(end, state_->offset_of(other.key_position));
    }
  }
  const size_t begin = std::min(state_->offset_of(entry->key_position), end);
  return state_->whole_text.substr(0, begin) + state_->whole_text.substr(end);
}

std::string ConfigReader::merged_text() const { return state_->root ? yaml_of(*state_->root) : ""; }

std::vector<std::string> ConfigReader::written_keys() const {
  std::vector<std::string> written;
  if (state_->root) {
    for (const ConfigEntry& entry : state_->frame().mapping->entries) {
      written.push_back(entry.key);
    }
  }
  return written;
}

std::string ConfigReader::finish() {
  if (state_->root) {
    state_->refuse_unknown_keys();
  }
  return state_->errors.text();
}

std::string ConfigReader::reference() const {
  PDJOB_CHECK(state_->describing);
  std::string text;
  for (const std::string& path : state_->section_order) {
    const Section& section = state_->sections.at(path);
    text += path.empty() ? "" : "\n## `" + path + "`\n\n" + section.doc + "\n\n";
    text += "| key | type | default | bounds | meaning |\n|---|---|---|---|---|\n" + section.table;
  }
  return text;
}

ConfigNode ConfigReader::values() const {
  PDJOB_CHECK(state_->writing);
  return state_->values;
}

}  // namespace pdjob
