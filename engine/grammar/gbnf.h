// The checks of a GBNF grammar before any library sees it: size, nesting, what repetitions
// multiply, and the words that XGrammar reads otherwise than GBNF. Pure.
#pragma once

#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// kInvalidArgument: too much, or not supported; the message names line and reason. The compiler
// finds the rest: an unknown rule, a missing bracket.
Status check_gbnf(std::string_view gbnf);

}  // namespace pdjob::engine
