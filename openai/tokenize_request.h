// The bodies of POST /tokenize and /detokenize, in vLLM's format. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"
#include "common/result.h"
#include "openai/openai.h"

namespace pdjob::openai {

struct TokenizeRequest {
  std::string prompt;                // Or ...
  std::vector<ApiMessage> messages;  // ... a conversation, if not empty.
  ApiTemplate chat_template;         // Of the conversation.
  std::vector<ApiTool> tools;        // The same.
  bool add_special_tokens = true;
  bool return_token_strs = false;
};
Result<TokenizeRequest, ApiError> parse_tokenize_request(std::string_view body,
                                                         std::vector<KnownField>* known = nullptr);
// `token_strs`: the text of each token; empty: they are not asked for.
std::string tokenize_body(const std::vector<Token>& tokens, uint32_t context_max,
                          std::span<const std::string> token_strs = {});

struct DetokenizeRequest {
  std::vector<Token> tokens;
  bool skip_special_tokens = false;
};
Result<DetokenizeRequest, ApiError> parse_detokenize_request(
    std::string_view body, size_t tokens_max, std::vector<KnownField>* known = nullptr);
std::string detokenize_body(std::string_view text);

}  // namespace pdjob::openai
