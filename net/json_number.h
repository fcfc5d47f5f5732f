// Numbers of JSON as integers, read alike by whoever counts a request and by whoever serves it:
// else a client would be charged for other numbers than it gets. 900.0 and 9e2 are integers, too:
// some clients have no other numbers. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/parse_number.h"

namespace pdjob::net {

// The integer that a number means; nothing if it has a fraction, or is too large to be exact.
inline std::optional<int64_t> whole_number(double number) {
  constexpr double kExactMax = 9007199254740992.0;  // 2^53
  return std::abs(number) <= kExactMax && std::trunc(number) == number
             ? std::optional(static_cast<int64_t>(number))
             : std::nullopt;
}

// The same of a value as it stands in a text that is JSON. Nothing: it is no such number.
inline std::optional<int64_t> json_integer(std::string_view value) {
  // What std::from_chars reads besides JSON's numbers: inf, nan, 01, 1., .5
  const std::string_view digits = value.substr(value.starts_with('-') ? 1 : 0);
  const bool is_number = !digits.empty() && digits.front() >= '0' && digits.front() <= '9' &&
                         (digits.front() != '0' || digits.size() == 1 || digits[1] == '.' ||
                          digits[1] == 'e' || digits[1] == 'E');
  if (!is_number) {
    return std::nullopt;
  }
  if (digits.find_first_not_of("0123456789") == std::string_view::npos) {
    return parse_number<int64_t>(value);
  }
  const size_t point = digits.find('.');
  if (point != std::string_view::npos &&
      (point + 1 == digits.size() || digits[point + 1] < '0' || digits[point + 1] > '9')) {
    return std::nullopt;
  }
  const auto number = parse_number<double>(value);
  return number ? whole_number(*number) : std::nullopt;
}

}  // namespace pdjob::net
