#include "common/id.h"

#include <charconv>

namespace pdjob {
namespace {

constexpr size_t kDigits = 16;

void append_hex(std::string& out, uint64_t value) {
  for (int shift = 60; shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(value >> shift) & 0xf];
  }
}

std::optional<uint64_t> parse_hex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::string TransferId::to_string() const {
  std::string text;
  text.reserve(2 * kDigits);
  append_hex(text, high);
  append_hex(text, low);
  return text;
}

std::optional<TransferId> TransferId::parse(std::string_view text) {
  if (text.size() != 2 * kDigits) {
    return std::nullopt;
  }
  const auto high = parse_hex(text.substr(0, kDigits));
  const auto low = parse_hex(text.substr(kDigits));
  if (!high || !low) {
    return std::nullopt;
  }
  return TransferId{*high, *low};
}

std::ostream& operator<<(std::ostream& out, const TransferId& id) { return out << id.to_string(); }

}  // namespace pdjob
