// ConfigReader: one declaration per key feeds the parser, the error messages and
// docs/reference/job-file.md.
//
// A folder declares its keys in `void read(ConfigReader& in, XConfig& config)`; the values already
// in `config` are the defaults. Errors are collected, never thrown. All are reported at once, each
// as
//   job.yaml:12:7: decode.workers: must be 1..1024, got 0
//   with the source line and a caret below.
// Unknown keys are errors; the message suggests a known key that is similar.
// The same calls without a file serve two other readers. A describing one generates the reference.
// A writing one writes the values, and a reader reads them as the same values. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/config_document.h"
#include "common/config/config_settings.h"
#include "common/result.h"
#include "common/time.h"

namespace pdjob {

struct FieldText {
  const char* doc;        // One sentence.
  const char* unit = "";  // "tokens", "bytes"; durations need none.
};

template <class T>
struct FieldRange {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};
// numeric_limits does not support durations.
template <>
struct FieldRange<Duration> {
  Duration min = Duration::zero();
  Duration max = Duration::max();
};

class ConfigReader {
 public:
  // Reads the text of a file; errors show `name` as the file's path. Syntax errors are collected
  // like all others. `settings` are laid over the file: they win, and errors in them name them.
  static ConfigReader parse(std::string name, std::string text,
                            const std::vector<ConfigSetting>& settings = {});
  // Reads nothing and records every declaration.
  static ConfigReader describe();
  // Reads nothing and records every value.
  static ConfigReader write();
  ConfigReader(ConfigReader&&) noexcept;
  ConfigReader& operator=(ConfigReader&&) noexcept;
  ~ConfigReader();

  void field(std::string_view key, bool& value, FieldText text);
  void field(std::string_view key, std::string& value, FieldText text);
  // A path. A relative one starts at the folder of the file that is read; a writing reader writes
  // it as an absolute one. With `ending`, only a
  // word with that ending or with a '/' is a path; any other is a name.
  void path(std::string_view key, std::string& value, FieldText text, std::string_view ending = "");
  void paths(std::string_view key, std::vector<std::string>& value, FieldText text);
  void field(std::string_view key, uint16_t& value, FieldText text,
             FieldRange<uint16_t> range = {});
  void field(std::string_view key, uint32_t& value, FieldText text,
             FieldRange<uint32_t> range = {});
  void field(std::string_view key, uint64_t& value, FieldText text,
             FieldRange<uint64_t> range = {});
  void field(std::string_view key, double& value, FieldText text, FieldRange<double> range = {});
  // In hundredths: `false` is 0, `true` is 100, and "0.25" is 25. Integer spelling of both, too.
  void portion(std::string_view key, uint32_t& hundredths, FieldText text);
  // "250ms", "5s", "10min"; a number without a unit is refused.
  void field(std::string_view key, Duration& value, FieldText text,
             FieldRange<Duration> range = {});
  void field(std::string_view key, std::vector<std::string>& value, FieldText text);

  // One of a fixed list of words. The enum overload below calls it.
  void choice(std::string_view key, size_t& index, std::span<const char* const> words,
              FieldText text);
  template <class Enum>
  void field(std::string_view key, Enum& value,
             std::initializer_list<std::pair<const char*, Enum>> words, FieldText text) {
    std::vector<const char*> names;
    size_t index = 0;
    for (const auto& [word, meaning] : words) {
      if (meaning == value) {
        index = names.size();
      }
      names.push_back(word);
    }
    choice(key, index, names, text);
    value = (words.begin() + index)->second;
  }

  // A nested mapping; `body` declares its keys. If it is absent, the defaults stay.
  void section(std::string_view key, FieldText text,
               const std::function<void(ConfigReader&)>& body);

  // A mapping whose keys the user chooses; `body` declares the keys of each entry. A writing reader
  // asks `body` for the names in `present`, whose values are there already. It also asks for an
  // entry without a name, to learn the defaults. Lists use named_items.h.
  void named_sections(std::string_view key, FieldText text,
                      const std::function<void(const std::string& name, ConfigReader&)>& body,
                      const std::vector<std::string>& present = {});

  // A key of an earlier version. Reports an error that names the key's new place, from the root.
  void moved(std::string_view key, std::string_view to);

  // Reports the failure of a rule that spans keys. `key` is a key of the current section, or
  // "section.key" below it. If the key is absent, the error stands at the section itself.
  void fail(std::string_view key, const std::string& message);
  // Reports what is allowed and may surprise, at the place where fail() would report it.
  void warn(std::string_view key, const std::string& message);
  // The warnings as lines, in order of position; empty without warnings.
  std::string warnings() const;
  // True if the user wrote the key.
  bool has(std::string_view key) const;
  // The word that the user wrote for the key, even if it is wrong; empty: there is none.
  std::string written(std::string_view key) const;
  // The declared keys of the current section that the user wrote. Later declarations do not count
  // yet.
  std::vector<std::string> keys() const;
  // The file's text without this key of its root and the key's value.
  std::string text_without(std::string_view key) const;
  // The file with its settings, as a text that is read as both.
  std::string merged_text() const;
  // All keys of the current section that the user wrote, in the file's order.
  std::vector<std::string> written_keys() const;

  // Call once after all declarations: refuses unknown keys. Returns all errors as one text, in
  // order of position; empty without errors.
  std::string finish();

  // The recorded declarations as Markdown tables. Only after describe().
  std::string reference() const;
  // The recorded values as a mapping. Only after write().
  ConfigNode values() const;

 private:
  struct State;
  void report(ConfigErrors& into, std::string_view key, const std::string& message);
  explicit ConfigReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pdjob
