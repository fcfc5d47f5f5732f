// What is looked at in a GBNF grammar before any library sees it: size, nesting, what repetitions
// multiply, and the words that XGrammar reads otherwise than GBNF. Pure.
#pragma once

#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// kInvalidArgument: too much, or not supported; the message names line and reason. What is merely
// wrong (an unknown rule, a missing bracket) is found by the compiler.
Status check_gbnf(std::string_view gbnf);

}  // namespace pdjob::engine
