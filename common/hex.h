// Hexadecimal in lower case, for ids and digests. Pure.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace pdjob {

// Appends the lowest `digits` digits of a number.
inline void append_hex(std::string& out, uint64_t value, size_t digits = 16) {
  const size_t begin = out.size();
  out.resize(begin + digits);
  for (size_t at = out.size(); at > begin; value >>= 4) {
    out[--at] = "0123456789abcdef"[value & 0xf];
  }
}

// Two digits for each byte.
inline std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    append_hex(text, std::to_integer<uint64_t>(byte), 2);
  }
  return text;
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
