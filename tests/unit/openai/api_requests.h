// Requests for tests: bodies around some fields, and what the parser makes of them.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "openai/openai.h"

namespace pdjob::openai {

inline constexpr std::string_view kMessages = R"("messages":[{"role":"user","content":"hi"}])";

// Returns a chat request with `fields` beside its messages.
inline std::string chat_body(std::string_view fields) {
  return "{" + std::string(kMessages) + (fields.empty() ? "" : ",") + std::string(fields) + "}";
}
inline std::string completion_body(std::string_view fields) {
  return R"({"prompt":"hi")" + std::string(fields.empty() ? "" : ",") + std::string(fields) + "}";
}

inline ApiRequest parsed(ApiKind kind, const std::string& body) {
  auto result = parse_api_request(kind, body);
  if (!result) {
    ADD_FAILURE() << result.error().message << " for " << body;
    return {};
  }
  return *std::move(result);
}
inline ApiRequest chat(std::string_view fields) {
  return parsed(ApiKind::kChat, chat_body(fields));
}
inline ApiRequest completion(std::string_view fields) {
  return parsed(ApiKind::kCompletion, completion_body(fields));
}

// Returns the refusal as "param | message".
inline std::string refusal_of(ApiKind kind, const std::string& body) {
  const auto result = parse_api_request(kind, body);
  if (result) {
    return "accepted";
  }
  EXPECT_EQ(result.error().status, 400);
  EXPECT_EQ(result.error().type, "invalid_request_error");
  return result.error().param + " | " + result.error().message;
}
inline std::string chat_refusal(std::string_view fields) {
  return refusal_of(ApiKind::kChat, chat_body(fields));
}
inline std::string completion_refusal(std::string_view fields) {
  return refusal_of(ApiKind::kCompletion, completion_body(fields));
}

}  // namespace pdjob::openai
