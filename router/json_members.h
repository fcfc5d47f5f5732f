// The members of one JSON object, by position: what leg_body.cc splices. Reads strictly (RFC 8259)
// and copies nothing but names. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob::router {

struct JsonMember {
  std::string name;  // Unescaped: `"mod\u0065l"` is model.
  size_t begin = 0;  // After '{' or ',', white space included.
  size_t value_begin = 0;
  size_t value_end = 0;
  size_t end = 0;  // Of the ',' or '}' that follows.
};

// In order, repeated names included. Nothing unless `text` is exactly one object, at most
// limits::kJsonDepthMax deep.
std::optional<std::vector<JsonMember>> json_members(std::string_view text);
// The first element of an array, as it stands; empty if there is none, or it is no array.
std::string_view json_first_element(std::string_view text);
// The text of a JSON string; nothing if it is none.
std::optional<std::string> json_string(std::string_view value);

}  // namespace pdjob::router
