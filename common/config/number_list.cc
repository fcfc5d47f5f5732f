#include "common/config/number_list.h"

#include "common/parse_number.h"

namespace pdjob {

namespace {

// "4" or "0-3".
bool add_range(std::string_view range, NumberList& numbers) {
  const size_t dash = range.find('-');
  const auto first = parse_number<uint32_t>(range.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : parse_number<uint32_t>(range.substr(dash + 1));
  const uint32_t least = numbers.empty() ? 0 : numbers.back() + 1;
  if (!first || !last || *first < least || *first > *last || *last >= kListedNumbersMax) {
    return false;
  }
  for (uint32_t number = *first; number <= *last; ++number) {
    numbers.push_back(number);
  }
  return true;
}

}  // namespace

std::optional<NumberList> parse_number_list(std::string_view text) {
  NumberList numbers;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (!add_range(text.substr(0, comma), numbers)) {
      return std::nullopt;
    }
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    if (comma != std::string_view::npos && text.empty()) {
      return std::nullopt;
    }
  }
  return numbers;
}

std::string number_list_text(const NumberList& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    text += (text.empty() ? "" : ",") + std::to_string(numbers[first]);
    text += last > first ? "-" + std::to_string(numbers[last]) : "";
    first = last + 1;
  }
  return text;
}

}  // namespace pdjob
