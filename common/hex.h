// Hexadecimal, in lower case: how ids and digests are written. Pure.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace pdjob {

// The lowest `digits` of a number.
inline void write_hex(char* to, uint64_t value, size_t digits) {
  for (size_t i = digits; i > 0; --i, value >>= 4) {
    to[i - 1] = "0123456789abcdef"[value & 0xf];
  }
}
inline void append_hex(std::string& out, uint64_t value, size_t digits = 16) {
  out.resize(out.size() + digits);
  write_hex(out.data() + out.size() - digits, value, digits);
}

inline std::optional<uint64_t> parse_hex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace pdjob
