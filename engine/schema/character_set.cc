#include "engine/schema/character_set.h"

#include <algorithm>

namespace pdjob::engine {
namespace {

// Letters of common scripts that are letters in every version of Unicode since 8.0.
const CharacterSet& letters() {
  static const CharacterSet set = {
      {'A', 'Z'},       {'a', 'z'},       {0xC0, 0xD6},     {0xD8, 0xF6},     {0xF8, 0x2AF},
      {0x388, 0x38A},   {0x38E, 0x3A1},   {0x3A3, 0x3F5},   {0x400, 0x481},   {0x48A, 0x527},
      {0x531, 0x556},   {0x561, 0x586},   {0x5D0, 0x5EA},   {0x620, 0x64A},   {0x904, 0x939},
      {0x3041, 0x3096}, {0x30A1, 0x30FA}, {0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3}};
  return set;
}

const CharacterSet& capitals() {
  static const CharacterSet set = {{'A', 'Z'},     {0xC0, 0xD6},   {0xD8, 0xDE},
                                   {0x391, 0x3A1}, {0x3A3, 0x3AB}, {0x400, 0x42F}};
  return set;
}

const CharacterSet& small_letters() {
  static const CharacterSet set = {
      {'a', 'z'}, {0xDF, 0xF6}, {0xF8, 0xFF}, {0x3AC, 0x3CE}, {0x430, 0x45F}};
  return set;
}

const CharacterSet& digits() {
  static const CharacterSet set = {{'0', '9'}};
  return set;
}

const CharacterSet& word() {
  static const CharacterSet set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}

const CharacterSet& space() {
  static const CharacterSet set = {{'\t', '\r'}, {' ', ' '}};
  return set;
}

const CharacterSet& ascii() {
  static const CharacterSet set = {{0, 0x7F}};
  return set;
}

CharacterSet with_letters(CharacterSet set) {
  set.add(letters());
  return set;
}

}  // namespace

CharacterSet::CharacterSet(std::initializer_list<Range> ranges) : ranges_(ranges) { join(); }

CharacterSet CharacterSet::all() { return {{0, 0xD7FF}, {0xE000, 0x10FFFF}}; }

std::optional<CharacterSet> CharacterSet::of_escape(char letter) {
  switch (letter) {
    case 'd':
      return digits();
    case 'D':
      return with_letters(ascii().without(digits()));
    case 'w':
      return word();
    case 'W':
      return ascii().without(word());
    case 's':
      return space();
    case 'S':
      return with_letters(ascii().without({{0, ' '}}));
    default:
      return std::nullopt;
  }
}

std::optional<CharacterSet> CharacterSet::of_property(std::string_view name) {
  if (name == "L" || name == "Letter" || name == "Alphabetic") {
    return letters();
  }
  if (name == "Lu" || name == "Uppercase_Letter") {
    return capitals();
  }
  if (name == "Ll" || name == "Lowercase_Letter") {
    return small_letters();
  }
  if (name == "N" || name == "Nd" || name == "Number" || name == "Decimal_Number") {
    return digits();
  }
  return std::nullopt;
}

void CharacterSet::join() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<Range> joined;
  for (const Range& range : ranges_) {
    if (!joined.empty() && range.first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, range.second);
    } else {
      joined.push_back(range);
    }
  }
  ranges_ = std::move(joined);
}

void CharacterSet::add(const CharacterSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  join();
}

CharacterSet CharacterSet::without(const CharacterSet& other) const {
  CharacterSet out;
  for (auto [low, high] : ranges_) {
    for (const auto& [from, to] : other.ranges_) {
      if (to < low || from > high) {
        continue;
      }
      if (from > low) {
        out.ranges_.emplace_back(low, from - 1);
      }
      low = to + 1;
    }
    if (low <= high) {
      out.ranges_.emplace_back(low, high);
    }
  }
  return out;
}

CharacterSet CharacterSet::within(const CharacterSet& other) const {
  return without(all().without(other));
}

bool CharacterSet::has(char32_t sign) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [sign](const Range& range) {
    return range.first <= sign && sign <= range.second;
  });
}

size_t CharacterSet::size() const {
  size_t size = 0;
  for (const auto& [low, high] : ranges_) {
    size += high - low + 1;
  }
  return size;
}

}  // namespace pdjob::engine
