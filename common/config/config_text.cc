#include "common/config/config_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <utility>

#include "common/parse_number.h"

namespace pdjob {
namespace {

struct Unit {
  const char* name;
  Duration length;
};
// Longest first: formatting takes the first unit that divides the duration.
constexpr std::array<Unit, 4> kUnits = {{{"h", std::chrono::hours(1)},
                                         {"min", std::chrono::minutes(1)},
                                         {"s", std::chrono::seconds(1)},
                                         {"ms", std::chrono::milliseconds(1)}}};

// A unit and the power of two that it stands for.
constexpr std::array<std::pair<std::string_view, int>, 4> kByteUnits{
    {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};

// Longer words are not typing errors, and the distance takes quadratic time.
constexpr size_t kWordBytesMax = 64;

// Levenshtein distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::optional<Duration> parse_duration(std::string_view text) {
  Duration::rep count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure != std::errc() || count < 0) {
    return std::nullopt;
  }
  const std::string_view unit_name = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& unit : kUnits) {
    if (unit_name == unit.name) {
      const bool fits = count <= Duration::max() / unit.length;
      return fits ? std::optional(count * unit.length) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::string format_duration(Duration duration) {
  for (const Unit& unit : kUnits) {
    if (duration >= unit.length && duration % unit.length == Duration::zero()) {
      return std::to_string(duration / unit.length) + unit.name;
    }
  }
  return duration == Duration::zero() ? "0s" : std::to_string(duration.count()) + "ns";
}

std::optional<uint32_t> parse_portion(std::string_view text) {
  const size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  std::string decimals(text.substr(std::min(point + 1, text.size())));
  while (decimals.size() > 2 && decimals.ends_with('0')) {
    decimals.pop_back();
  }
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool form = (whole == "0" || whole == "1" || (whole.empty() && !decimals.empty())) &&
                    decimals.size() <= 2 && std::ranges::all_of(decimals, digit);
  if (!form) {
    return std::nullopt;
  }
  decimals.resize(2, '0');
  const uint32_t hundredths =
      (whole == "1" ? 100U : 0U) + static_cast<uint32_t>(std::stoul(decimals));
  return hundredths <= 100 ? std::optional(hundredths) : std::nullopt;
}

std::string portion_text(uint64_t hundredths) {
  std::string decimals = std::to_string(100 + hundredths % 100).substr(1);
  decimals.erase(decimals.find_last_not_of('0') + 1);
  return std::to_string(hundredths / 100) + (decimals.empty() ? "" : "." + decimals);
}

std::string in_bytes(const std::string& written) {
  for (const auto& [unit, shift] : kByteUnits) {
    if (written.ends_with(unit)) {
      const auto number = parse_number<uint64_t>(written.substr(0, written.size() - unit.size()));
      return number && *number <= UINT64_MAX >> shift ? std::to_string(*number << shift) : written;
    }
  }
  return written;
}

std::string absolute_path(const std::string& path) {
  return path.empty() || path.starts_with('~')
             ? path
             : std::filesystem::absolute(path).lexically_normal().string();
}

std::string printable(std::string_view text, size_t bytes_max) {
  std::string shown(text.substr(0, bytes_max));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = '?';
    }
  }
  return text.size() > bytes_max ? shown + "..." : shown;
}

std::string quote(std::string_view text) { return '"' + printable(text, 40) + '"'; }

std::string double_quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20) {
      quoted.append("\\u00").append(1, kDigits[code >> 4U]).append(1, kDigits[code & 15U]);
    } else {
      quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
  }
  return quoted + '"';
}

std::string yaml_text(std::string_view text) {
  const auto plain = [](char c) {
    const auto letter = static_cast<unsigned char>(c);
    return std::isalnum(letter) != 0 || std::string_view("._-/=+,:").find(c) != std::string::npos;
  };
  const size_t first = std::min(text.find_first_not_of('-'), text.size());
  const bool starts_plainly =
      first < text.size() && (std::isalnum(static_cast<unsigned char>(text[first])) != 0 ||
                              (first == 0 && (text[0] == '/' || text[0] == '.')));
  const bool nothing = text == "null" || text == "Null" || text == "NULL";
  if (starts_plainly && !nothing && text.back() != ':' && std::ranges::all_of(text, plain)) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      return double_quoted(text);  // Single quotes would fold line ends into blanks.
    }
    quoted += c == '\'' ? "''" : std::string(1, c);
  }
  return quoted + "'";
}

std::string nearest_word(std::string_view written, const std::vector<std::string>& known) {
  if (written.size() > kWordBytesMax) {
    return {};
  }
  std::string nearest;
  size_t best = std::max<size_t>(1, written.size() / 3) + 1;
  for (const std::string& word : known) {
    const size_t distance = edit_distance(written, word);
    if (distance < best && distance < word.size()) {
      best = distance;
      nearest = word;
    }
  }
  return nearest;
}

}  // namespace pdjob
