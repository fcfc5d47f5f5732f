// Sets of Unicode characters, as a regular expression's classes name them. Where dialects of
// regular expressions differ, a set has only the characters that all of them count in. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pdjob::engine {

class CharacterSet {
 public:
  using Range = std::pair<char32_t, char32_t>;  // Both ends belong to it.

  CharacterSet() = default;
  CharacterSet(std::initializer_list<Range> ranges);

  static CharacterSet all();
  // d, w, s, and their opposites D, W, S.
  static std::optional<CharacterSet> of_escape(char letter);
  // \p{name}; empty for a name that pdjob does not know.
  static std::optional<CharacterSet> of_property(std::string_view name);

  void add(const CharacterSet& other);
  CharacterSet without(const CharacterSet& other) const;
  CharacterSet within(const CharacterSet& other) const;

  bool has(char32_t sign) const;
  bool empty() const { return ranges_.empty(); }
  size_t size() const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  void join();

  std::vector<Range> ranges_;  // Sorted, apart from each other.
};

}  // namespace pdjob::engine
