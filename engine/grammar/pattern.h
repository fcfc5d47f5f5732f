// Rewrites a JSON schema's `pattern` in the subset of regular expressions that XGrammar follows
// exactly. Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// Returns a pattern that matches the same strings. Each class and each "." in it lists its
// characters, without quotes, backslashes and control characters. So a match can be the inside of a
// JSON string unchanged.
// Supported: "^...$" around literals, ".", classes, \d \w \s, groups, "|" inside groups, and * + ?
// {n} {n,} {n,m}. Fails with kInvalidArgument for anything else, or if the pattern is too large;
// the message gives the reason.
Result<std::string> translate_pattern(std::string_view pattern);

}  // namespace pdjob::engine
