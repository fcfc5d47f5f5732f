// JSON numbers as integers. The router that counts a request and the worker that serves it must
// read the same number. Otherwise clients would be charged wrongly. Numbers such as 900.0 and 9e2
// are integers, too, because some clients can only write those. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/parse_number.h"

namespace pdjob::openai {

// The number as an integer; empty if it has a fraction or is too large to be exact.
inline std::optional<int64_t> whole_number(double number) {
  constexpr double kExactMax = 9007199254740992.0;  // 2^53
  return std::abs(number) <= kExactMax && std::trunc(number) == number
             ? std::optional(static_cast<int64_t>(number))
             : std::nullopt;
}

// The same for a raw value of a JSON text; empty also if it is not a number.
inline std::optional<int64_t> json_integer(std::string_view value) {
  // std::from_chars also reads texts that are not JSON numbers: inf, nan, 01, 1., .5
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

}  // namespace pdjob::openai
