// Where and why a text is not JSON, for people: simdjson, which reads requests, tells neither.
// Slow, so only after it failed. Pure.
#pragma once

#include <string>
#include <string_view>

namespace pdjob::net {

// "parse error at line 1, column 9: ..."; empty if the text is JSON, or too long to look.
std::string json_syntax_error(std::string_view text);

}  // namespace pdjob::net
