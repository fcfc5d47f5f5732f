#include "openai/tokenize_request.h"

#include <simdjson.h>

#include "common/json/json_writer.h"
#include "openai/openai_fields.h"

namespace pdjob::openai {

namespace {

// Returns true if it has a conversation, which is not read here.
bool read_tokenize_request(const Fields& fields, TokenizeRequest& request) {
  fields.idle("model");
  fields.boolean("add_special_tokens", request.add_special_tokens);
  fields.boolean("return_token_strs", request.return_token_strs);
  if (fields.find("messages")) {
    return true;
  }
  const auto prompt = fields.find("prompt");
  if (prompt && prompt->is_string()) {
    fields.text("prompt", request.prompt);
  } else {
    fields.wrong("prompt", "must be a string, or messages a conversation");
  }
  return false;
}

void read_detokenize_request(const Fields& fields, size_t tokens_max, DetokenizeRequest& request) {
  fields.idle("model");
  if (const auto list = fields.list("tokens", tokens_max)) {
    read_tokens(fields.reading(), "tokens", *list, request.tokens);
  } else {
    fields.wrong("tokens", "must be a list of token ids");
  }
  fields.boolean("skip_special_tokens", request.skip_special_tokens);
}

}  // namespace

Result<TokenizeRequest, ApiError> parse_tokenize_request(std::string_view body,
                                                         std::vector<KnownField>* known) {
  TokenizeRequest request;
  bool is_chat = false;
  PDJOB_TRY_STATUS(read_object(
      body, [&](const Fields& fields) { is_chat = read_tokenize_request(fields, request); },
      known));
  if (is_chat) {
    // The rules of chat apply to a conversation.
    PDJOB_TRY(ApiRequest chat, parse_api_request(ApiKind::kChat, body));
    request.messages = std::move(chat.messages);
    request.chat_template = std::move(chat.chat_template);
    request.tools = std::move(chat.tools);
  }
  return request;
}

std::string tokenize_body(const std::vector<Token>& tokens, uint32_t context_max,
                          std::span<const std::string> token_strs) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("count").integer(tokens.size());
  json.key("max_model_len").integer(context_max);
  json.key("tokens").begin_array();
  for (const Token token : tokens) {
    json.integer(token);
  }
  json.end_array();
  if (!token_strs.empty()) {
    json.key("token_strs").begin_array();
    for (const std::string& token : token_strs) {
      json.string(token);
    }
    json.end_array();
  }
  json.end_object();
  return text;
}

Result<DetokenizeRequest, ApiError> parse_detokenize_request(std::string_view body,
                                                             size_t tokens_max,
                                                             std::vector<KnownField>* known) {
  DetokenizeRequest request;
  PDJOB_TRY_STATUS(read_object(
      body, [&](const Fields& fields) { read_detokenize_request(fields, tokens_max, request); },
      known));
  return request;
}

std::string detokenize_body(std::string_view text) {
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  json.key("prompt").string(text);
  json.end_object();
  return body;
}

}  // namespace pdjob::openai
