// How values and bounds of keys are shown, in the reference and in errors. Pure.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "common/config/config_reader.h"
#include "common/config/config_text.h"
#include "common/time.h"

namespace pdjob {

inline std::string format(bool value) { return value ? "true" : "false"; }
inline std::string format(const std::string& value) { return value.empty() ? "" : quote(value); }
inline std::string format(Duration value) { return format_duration(value); }
inline std::string format(const std::vector<std::string>& value) {
  std::string text;
  for (const std::string& item : value) {
    text += (text.empty() ? "" : ", ") + item;
  }
  return '[' + text + ']';
}
template <class Number>
  requires std::is_arithmetic_v<Number>
std::string format(Number value) {
  std::array<char, 64> digits{};
  const auto [end, failure] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return failure == std::errc() ? std::string(digits.data(), end) : "?";
}

// "1..1024", "at least 1", "at most 8"; empty if every value of the type is valid.
template <class T>
std::string bounds_text(const FieldRange<T>& range) {
  const bool has_min = range.min > FieldRange<T>{}.min;
  const bool has_max = range.max < FieldRange<T>{}.max;
  if (has_min && has_max) {
    return format(range.min) + ".." + format(range.max);
  }
  if (has_max) {
    const bool starts_at_zero = FieldRange<T>{}.min == T{};
    return (starts_at_zero ? format(T{}) + ".." : "at most ") + format(range.max);
  }
  return has_min ? "at least " + format(range.min) : "";
}

}  // namespace pdjob
