#include "openai/replies/tokenize_reply.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "openai/json/json_edit.h"

namespace pdjob::openai {

// Parsed by hand: it can be half a megabyte, and the loop waits.
Result<std::vector<uint32_t>> parse_tokenize_reply(const std::string& body) {
  static constexpr std::string_view kTokens = "tokens";
  constexpr std::string_view kBetween = " \t\r\n,";
  const Error corrupt{ErrorCode::kCorrupt, "the reply names no tokens"};
  const auto object = JsonObject::scan(body, {&kTokens, 1});
  std::string_view left = object ? object->value(kTokens) : std::string_view();
  if (!left.starts_with('[') || !left.ends_with(']')) {
    return corrupt;
  }
  left = left.substr(1, left.size() - 2);
  std::vector<uint32_t> tokens;
  while (true) {
    left.remove_prefix(std::min(left.find_first_not_of(kBetween), left.size()));
    if (left.empty()) {
      break;
    }
    uint32_t token = 0;
    const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), token);
    if (error != std::errc()) {
      return corrupt;
    }
    tokens.push_back(token);
    left.remove_prefix(static_cast<size_t>(end - left.data()));
  }
  return tokens.empty() ? Result<std::vector<uint32_t>>(corrupt) : std::move(tokens);
}

}  // namespace pdjob::openai
