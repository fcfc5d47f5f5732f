// Rewrites a client's regular expression in the subset that XGrammar follows exactly. The result
// matches the same strings or fewer, never others: dialects of regular expressions differ in some
// classes, and a length may be asked beside the pattern. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// Characters of a whole match.
struct MatchLength {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

// For a JSON schema's `pattern`: the inside of a JSON string, whose value matches somewhere, as
// JSON Schema says, and has such a length. Empty: every string matches. Supported: ^ and $ around
// the whole or around its alternatives, literals, ".", classes, escapes,
// \p{L}, groups, "|", and * + ? {n} {n,} {n,m}, also lazy. Fails with kInvalidArgument for anything
// else, for a length that cannot be kept, or if the pattern is too large; the message gives the
// reason.
Result<std::string> translate_pattern(std::string_view pattern, const MatchLength& length = {});

// A pattern of texts that match both. The part that is anchored at its beginning comes first, and
// the part that is anchored at its end comes last, so texts in which the two overlap are left out.
// None if both anchor the same side, if one has alternatives outside of groups, or if it cannot be
// followed.
std::optional<std::string> join_patterns(std::string_view one, std::string_view other);

// For a text that matches as a whole.
Result<std::string> translate_regex(std::string_view regex);

}  // namespace pdjob::engine
