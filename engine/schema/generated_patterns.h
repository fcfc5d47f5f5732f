// Regular expressions that everyday generators of schemas write and that look ahead, which XGrammar
// cannot follow, each with one that can be followed instead. Pure.
#pragma once

#include <string>
#include <string_view>

namespace pdjob::engine {

// A pattern that matches only strings which `pattern` matches, too; `pattern` itself if it is none
// of a generator's.
std::string followed_form(std::string_view pattern);

}  // namespace pdjob::engine
