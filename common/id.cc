#include "common/id.h"

#include "common/hex.h"

namespace pdjob {
namespace {

constexpr size_t kDigits = 16;

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
