// JsonWriter: appends JSON to a string in one pass, without a tree. It adds commas and escapes; the
// caller must alternate keys and values. It replaces bytes that are not valid UTF-8 with U+FFFD.
// Value.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace pdjob {

// The content of a JSON string, without its quotes.
void append_json_escaped(std::string& out, std::string_view text);

class JsonWriter {
 public:
  // `out` must outlive the writer and keeps its earlier content.
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view text);
  JsonWriter& integer(std::integral auto number) {
    return std::unsigned_integral<decltype(number)> ? unsigned_integer(number)
                                                    : signed_integer(number);
  }
  // The shortest digits that read back as the same number. Writes null for inf and NaN, which JSON
  // does not have.
  JsonWriter& number(float number);
  JsonWriter& number(double number);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  // `json` must be one JSON value.
  JsonWriter& raw(std::string_view json);

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& signed_integer(int64_t number);
  JsonWriter& unsigned_integer(uint64_t number);
  void separate();

  std::string& out_;
  bool value_before_ = false;  // In the innermost open bracket, so that a comma comes next.
};

}  // namespace pdjob
