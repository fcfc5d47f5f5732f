#include "openai/tokenize_request.h"

#include <optional>

#include <simdjson.h>

#include "common/json/json_writer.h"
#include "common/limits.h"

namespace pdjob::openai {
namespace {

// Returns the body as an object, or the error. `parser` owns the object's data.
std::variant<simdjson::dom::object, ApiError> parse_object(simdjson::dom::parser& parser,
                                                           std::string_view body) {
  simdjson::dom::element root;
  if (const auto error = parser.parse(body.data(), body.size()).get(root)) {
    return invalid_request(std::string("the body is not JSON: ") + simdjson::error_message(error),
                           "");
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return invalid_request("the body must be a JSON object", "");
  }
  return object;
}

}  // namespace

std::variant<TokenizeRequest, ApiError> parse_tokenize_request(std::string_view body) {
  simdjson::dom::parser parser(limits::kHttpBodyBytesMax + limits::kKiB);
  auto parsed = parse_object(parser, body);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    return *error;
  }
  const auto& object = std::get<simdjson::dom::object>(parsed);
  TokenizeRequest request;
  bool special = true;
  if (object["add_special_tokens"].get(special) == simdjson::SUCCESS) {
    request.add_special_tokens = special;
  }
  simdjson::dom::element messages;
  if (object["messages"].get(messages) == simdjson::SUCCESS) {
    // The rules of chat apply to a conversation.
    auto chat = parse_api_request(ApiKind::kChat, body);
    if (auto* error = std::get_if<ApiError>(&chat)) {
      return *error;
    }
    request.messages = std::move(std::get<ApiRequest>(chat).messages);
    request.chat_template = std::move(std::get<ApiRequest>(chat).chat_template);
    request.tools = std::move(std::get<ApiRequest>(chat).tools);
    return request;
  }
  std::string_view prompt;
  if (object["prompt"].get(prompt) != simdjson::SUCCESS) {
    return invalid_request("prompt must be a string, or messages a conversation", "prompt");
  }
  request.prompt = prompt;
  return request;
}

std::string tokenize_body(const std::vector<Token>& tokens, uint32_t context_max) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("count").integer(tokens.size());
  json.key("max_model_len").integer(context_max);
  json.key("tokens").begin_array();
  for (const Token token : tokens) {
    json.integer(token);
  }
  json.end_array().end_object();
  return text;
}

std::variant<std::vector<Token>, ApiError> parse_detokenize_request(std::string_view body,
                                                                    size_t tokens_max) {
  simdjson::dom::parser parser(limits::kHttpBodyBytesMax + limits::kKiB);
  auto parsed = parse_object(parser, body);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    return *error;
  }
  simdjson::dom::array array;
  if (std::get<simdjson::dom::object>(parsed)["tokens"].get(array) != simdjson::SUCCESS) {
    return invalid_request("tokens must be a list of token ids", "tokens");
  }
  if (array.size() > tokens_max) {
    return invalid_request("tokens must be at most " + std::to_string(tokens_max) + " token ids",
                           "tokens");
  }
  std::vector<Token> tokens;
  tokens.reserve(array.size());
  for (const auto element : array) {
    int64_t token = 0;
    if (element.get(token) != simdjson::SUCCESS || token < 0 || token > INT32_MAX) {
      return invalid_request("tokens must be a list of token ids",
                             "tokens[" + std::to_string(tokens.size()) + "]");
    }
    tokens.push_back(static_cast<Token>(token));
  }
  return tokens;
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
