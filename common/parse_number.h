// Reads a text that must be one number, without other characters. Pure.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace pdjob {

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

}  // namespace pdjob
