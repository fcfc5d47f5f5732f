// Writes a JSON schema's `pattern` anew, in the part of the regular expressions that XGrammar
// follows exactly. Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// The result matches the same strings as `pattern`, and each class and each "." in it names its
// characters. None of them is a quote, a backslash or a control character: a match is the inside of
// a JSON string as it stands. Supported: "^...$" around literals, ".", classes, \d \w \s, groups,
// "|" inside groups, and * + ? {n} {n,} {n,m}. kInvalidArgument: it is anything else, or too large;
// the message says what.
Result<std::string> translate_pattern(std::string_view pattern);

}  // namespace pdjob::engine
