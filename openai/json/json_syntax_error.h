// Says, for people, where and why a text is not JSON. simdjson, which reads requests, lacks this.
// Slow, so call it only after simdjson failed. Pure.
#pragma once

#include <string>
#include <string_view>

namespace pdjob::openai {

// "parse error at line 1, column 9: ..."; empty if the text is JSON, or too long to check.
std::string json_syntax_error(std::string_view text);

// The path of the first number above 1.8e308, "logit_bias.17" or "stop[0].x"; empty if there is
// none, or the text is not JSON up to there, or too long to check.
std::string json_large_number(std::string_view text);

// The text with ".0" after each integer of more than 64 bits, so that simdjson reads it.
std::string with_points_in_large_integers(std::string_view text);

}  // namespace pdjob::openai
