// Checks a GBNF grammar before any library sees it: size, nesting, the product of repetitions, and
// words that XGrammar reads differently from GBNF. Pure.
#pragma once

#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// Fails with kInvalidArgument if the grammar is too large or not supported; the message names line
// and reason. The compiler finds other errors: an unknown rule, a missing bracket.
Status check_gbnf(std::string_view gbnf);

}  // namespace pdjob::engine
