// JsonWriter: appends JSON to a string, in one pass and without a tree. Commas and escapes are its
// work; that keys and values alternate is the caller's. Text need not be valid UTF-8: what is not
// becomes U+FFFD. Value.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace pdjob::net {

// The inside of a JSON string: no quotes around it.
void append_json_escaped(std::string& out, std::string_view text);

class JsonWriter {
 public:
  // `out` outlives the writer, and what it holds already stays.
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
  // The shortest digits that read back as the same number; null if it is not finite, which JSON
  // cannot say.
  JsonWriter& number(float number);
  JsonWriter& number(double number);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  // `json` is one JSON value already.
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

}  // namespace pdjob::net
