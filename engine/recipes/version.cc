#include "engine/recipes/version.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/parse_number.h"

namespace pdjob::engine {
namespace {

std::vector<uint32_t> numbers_of(std::string_view version) {
  std::vector<uint32_t> numbers;
  if (version.starts_with('v')) {
    version.remove_prefix(1);
  }
  while (true) {
    const size_t end = std::min(version.find_first_not_of("0123456789"), version.size());
    const auto number = parse_number<uint32_t>(version.substr(0, end));
    if (!number) {
      return numbers;
    }
    numbers.push_back(*number);
    if (end == version.size() || version[end] != '.') {
      return numbers;
    }
    version.remove_prefix(end + 1);
  }
}

}  // namespace

bool is_release(std::string_view version) {
  return !numbers_of(version).empty() && version.find("dev") == std::string_view::npos;
}

bool is_older(std::string_view version, std::string_view than) {
  std::vector<uint32_t> one = numbers_of(version);
  std::vector<uint32_t> other = numbers_of(than);
  const size_t size = std::max(one.size(), other.size());
  one.resize(size);
  other.resize(size);
  return one < other;
}

}  // namespace pdjob::engine
