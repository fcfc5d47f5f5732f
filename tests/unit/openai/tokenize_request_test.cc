#include "openai/tokenize_request.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::openai {
namespace {

TokenizeRequest parsed(std::string_view body) {
  auto request = parse_tokenize_request(body);
  EXPECT_TRUE(request) << body;
  return *std::move(request);
}

std::string wrong_field(std::string_view body) {
  const auto request = parse_tokenize_request(body);
  return request ? "none" : std::to_string(request.error().status) + " " + request.error().param;
}

TEST(TokenizeRequest, HasAPromptOrAConversation) {
  EXPECT_EQ(parsed(R"({"prompt":"a b"})").prompt, "a b");
  EXPECT_TRUE(parsed(R"({"prompt":""})").prompt.empty());
  EXPECT_FALSE(parsed(R"({"prompt":"a","add_special_tokens":false})").add_special_tokens);
  EXPECT_EQ(parsed(R"({"messages":[{"role":"user","content":"hi"}]})").messages.size(), 1U);
  EXPECT_EQ(wrong_field("{}"), "400 prompt");
  EXPECT_EQ(wrong_field(R"({"prompt":["a"]})"), "400 prompt");
  EXPECT_EQ(wrong_field(R"({"messages":[]})"), "400 messages");
  EXPECT_EQ(wrong_field(R"({"prompt":"a","add_special_tokens":"yes"})"), "400 add_special_tokens");
  EXPECT_EQ(wrong_field(R"({"prompt":"a","x":1e999})"), "400 x");
  EXPECT_EQ(wrong_field("[]"), "400 ");
}

TEST(TokenizeReply, HasTheTextOfEachTokenWhereItIsAsked) {
  EXPECT_TRUE(parsed(R"({"prompt":"a","return_token_strs":true})").return_token_strs);
  const std::vector<std::string> texts = {"a", " \"b"};
  EXPECT_EQ(tokenize_body({1, 2}, 8, texts),
            R"({"count":2,"max_model_len":8,"tokens":[1,2],"token_strs":["a"," \"b"]})");
  EXPECT_EQ(tokenize_body({1, 2}, 8), R"({"count":2,"max_model_len":8,"tokens":[1,2]})");
}

TEST(DetokenizeRequest, IsAListOfTokens) {
  const auto wrong = [](std::string_view body) {
    const auto tokens = parse_detokenize_request(body, 3);
    return tokens ? "none" : tokens.error().param;
  };
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[1,2]})", 3)->tokens, (std::vector<Token>{1, 2}));
  for (const bool skips : {false, true}) {
    const std::string body =
        std::string(R"({"tokens":[1],"skip_special_tokens":)") + (skips ? "true}" : "false}");
    EXPECT_EQ(parse_detokenize_request(body, 3)->skip_special_tokens, skips);
  }
  EXPECT_EQ(wrong("{}"), "tokens");
  EXPECT_EQ(wrong(R"({"tokens":[1,2,3,4]})"), "tokens");
  EXPECT_EQ(wrong(R"({"tokens":[1,-2]})"), "tokens[1]");
  EXPECT_EQ(wrong(R"({"tokens":[99999999999999999999]})"), "tokens[0]");
}

}  // namespace
}  // namespace pdjob::openai
