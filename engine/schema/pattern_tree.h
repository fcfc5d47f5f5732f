// A regular expression as a tree. Only for pattern.cc. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/schema/character_set.h"
#include "engine/schema/pattern.h"

namespace pdjob::engine {

inline constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

struct PatternTree {
  enum class Kind : uint8_t { kSet, kSequence, kChoice, kRepeat, kBegin, kEnd };
  Kind kind = Kind::kSequence;
  CharacterSet set = {};                // kSet.
  std::vector<PatternTree> parts = {};  // kSequence, kChoice; one for kRepeat.
  int64_t least = 1;                    // kRepeat.
  int64_t most = 1;
};

Error bad_pattern(const std::string& what);

// Fails with kInvalidArgument; the message gives the reason.
Result<PatternTree> parse_pattern(std::string_view text);

MatchLength match_length(const PatternTree& tree);

// Makes the tree match only texts of such a length; false if it cannot.
bool fit_length(PatternTree& tree, const MatchLength& length);

}  // namespace pdjob::engine
