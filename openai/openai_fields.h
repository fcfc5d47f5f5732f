// Reads the JSON of a request field by field. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/generation.h"
#include "common/result.h"
#include "openai/openai.h"

namespace simdjson::dom {
// NOLINTBEGIN(readability-identifier-naming): theirs.
class array;
class element;
class object;
// NOLINTEND(readability-identifier-naming)
}  // namespace simdjson::dom

namespace pdjob::openai {

// A field that a parser knows, for the reference page.
struct KnownField {
  std::string name;      // "sampling_params.n", "messages[].role".
  std::string allowed;   // "true or false"; empty: the parser looks at it itself.
  bool refused = false;  // If it asks for something.
  bool idle = false;     // Accepted, and without effect.
  friend bool operator==(const KnownField&, const KnownField&) = default;
};

// `outcome`: the first error of a request; later ones are dropped. `known` notes the fields that
// the parser looks for; null: nobody wants them. Value.
struct Reading {
  Result<Done, ApiError> outcome = ok();
  std::vector<KnownField>* known = nullptr;
};

// `param` is the wrong field, "messages[3].content"; empty: the whole body.
void refuse(Reading& reading, const std::string& param, const std::string& message);
// Refuses `value`: "must be <allowed>, got <value>".
void must_be(Reading& reading, const std::string& param, const std::string& allowed,
             const simdjson::dom::element& value);

void read_text(Reading& reading, const std::string& param, const simdjson::dom::element& value,
               std::string& out);
void read_tokens(Reading& reading, const std::string& param, const simdjson::dom::array& list,
                 std::vector<Token>& out);

// True if an unsupported field asks for something: its value is not false, "", [] or {}.
bool asks_for_something(const simdjson::dom::element& value);

// "list[2]"
std::string element_name(const std::string& list, size_t index);
// In double quotes, cut if it is long.
std::string excerpt(std::string_view text);

inline constexpr int64_t kTokenMax = INT32_MAX;

struct IntegerRange {
  int64_t min;
  int64_t max;
};
struct NumberRange {
  int min;
  int max;
  bool above_min = false;  // `min` itself is not allowed.
};
std::string to_string(IntegerRange range);
std::string to_string(NumberRange range);

// The fields of one JSON object, each read by name into a native value. An absent or null field
// leaves the value unchanged; a wrong one sets the outcome. The parsed document must outlive it.
// Value.
class Fields {
 public:
  // `path` precedes a field's name in an error: "", "stream_options.".
  Fields(const simdjson::dom::object& object, std::string path, Reading& reading);

  // The last field of that name counts, as in Python. So a field that the router appends takes
  // effect.
  std::optional<simdjson::dom::element> find(std::string_view name) const;
  // True if the field is there, and null.
  bool is_null(std::string_view name) const;
  std::optional<simdjson::dom::array> list(std::string_view name, size_t elements_max) const;
  std::optional<Fields> object(std::string_view name) const;
  // All of them, whatever their names are.
  std::vector<std::pair<std::string_view, simdjson::dom::element>> members() const;

  // Refuses the field if it asks for something. `neutral`: values as JSON that ask for nothing,
  // too; empty ones are skipped.
  void unsupported(std::string_view name, std::string_view why = "is not supported",
                   std::span<const std::string_view> neutral = {}) const;
  // Notes that the field, which has been read, has no effect.
  void idle(std::string_view name) const;
  // Refuses the field if it is there and not `supported`.
  void only(std::string_view name, bool supported) const;

  void boolean(std::string_view name, bool& out) const;
  void number(std::string_view name, NumberRange range, float& out) const;
  void text(std::string_view name, std::string& out) const;
  // True if the field is present and valid.
  template <class Integer>
  bool integer(std::string_view name, IntegerRange range, Integer& out) const {
    const auto value = integer_in(name, range);
    out = value ? static_cast<Integer>(*value) : out;
    return value.has_value();
  }

  std::string param(std::string_view name) const { return path_ + std::string(name); }
  void wrong(std::string_view name, const std::string& why) const {
    refuse(reading_, param(name), why);
  }
  Reading& reading() const { return reading_; }

 private:
  std::optional<simdjson::dom::element> last(std::string_view name) const;
  std::optional<simdjson::dom::element> value_of(std::string_view name) const;
  // Null: nobody wants to know.
  KnownField* note(std::string_view name, std::string allowed) const;
  template <class Range>
  void note_range(std::string_view name, Range range) const {
    if (reading_.known != nullptr) {  // Otherwise no request pays for the text.
      note(name, to_string(range));
    }
  }
  std::optional<int64_t> integer_in(std::string_view name, IntegerRange range) const;

  std::shared_ptr<const simdjson::dom::object> object_;  // Null: too large to be read.
  std::string path_;
  Reading& reading_;
};

// Passes the body's fields to `read`, if it is one JSON object within the limits of requests.
// Returns the first error.
Result<Done, ApiError> read_object(std::string_view body,
                                   const std::function<void(const Fields&)>& read,
                                   std::vector<KnownField>* known = nullptr);

}  // namespace pdjob::openai
