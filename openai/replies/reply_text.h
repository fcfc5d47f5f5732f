// Reads replies of completions and chats: the text, and how sure the engine was of each token.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob::openai {

struct SaidToken {
  std::string text;
  // By how much the likeliest token was likelier than the second, as a difference of logprobs.
  double margin = 0;
};
struct ReplyText {
  std::string text;
  std::vector<SaidToken> tokens;  // Empty: the reply has no logprobs of two tokens.
};

// `body`: a whole reply, or all events of a stream. Empty: it is no such reply, or it has more than
// one choice, or more than text (calls of tools, reasoning).
std::optional<ReplyText> text_of_reply(std::string_view content_type, const std::string& body);

}  // namespace pdjob::openai
