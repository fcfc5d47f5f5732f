#include "openai/tokens_request.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::openai {
namespace {

ApiRequest parsed(const std::string& body) {
  auto result = parse_api_request(ApiKind::kTokens, body);
  if (!result) {
    ADD_FAILURE() << result.error().message << " for " << body;
    return {};
  }
  return *std::move(result);
}
// Returns the wrong field.
std::string refused(const std::string& body) {
  const auto result = parse_api_request(ApiKind::kTokens, body);
  return result ? "accepted" : result.error().param;
}

TEST(TokensRequest, WithoutALimitItFillsTheContext) {
  const ApiRequest request = parsed(R"({"token_ids":[1,2]})");
  EXPECT_EQ(request.token_prompts, (std::vector<std::vector<Token>>{{1, 2}}));
  EXPECT_TRUE(request.fills_context);
  EXPECT_TRUE(request.tokens_as_ids);
  EXPECT_EQ(request.sampling, SamplingParams{});
  EXPECT_TRUE(request.rids.empty());
  EXPECT_TRUE(parsed(R"({"token_ids":[1],"sampling_params":{"max_tokens":null}})").fills_context);
}

TEST(TokensRequest, ReadsVllmsSamplingParams) {
  const ApiRequest request = parsed(
      R"({"token_ids":[1],"request_id":"r","model":"m","stream":true,"cache_salt":"7",
          "stream_options":{"include_usage":true},"priority":0,"features":null,
          "sampling_params":{"max_tokens":9,"min_tokens":2,"temperature":3,"top_k":-1,"seed":4,
            "n":2,"logprobs":1,"stop":["x"],"stop_token_ids":[5],"skip_special_tokens":false,
            "ignore_eos":true,"include_stop_str_in_output":true,"detokenize":false,
            "prompt_logprobs":null,"structured_outputs":{"json":{}}}})");
  EXPECT_EQ(request.rids, std::vector<std::string>{"r"});
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.cache_salt, "7");
  EXPECT_TRUE(request.stream && request.include_usage && request.seeded);
  EXPECT_FALSE(request.fills_context);
  EXPECT_EQ(request.choices, 2U);
  EXPECT_EQ(request.sampling.logprobs, 1);
  EXPECT_FALSE(request.sampling.logprobs_at_temperature) << "vLLM reports raw ones";
  EXPECT_EQ(request.sampling.json_schema, "{}");
  const StopParams stop = {.max_tokens = 9,
                           .min_tokens = 2,
                           .strings = {"x"},
                           .token_ids = {5},
                           .include_stop_string = true,
                           .skip_special_tokens = false};
  EXPECT_EQ(request.stop, stop);
}

TEST(TokensRequest, TakesOnePromptOfTokensOnly) {
  EXPECT_EQ(refused(R"({})"), "token_ids");
  EXPECT_EQ(refused(R"({"token_ids":"a"})"), "token_ids");
  EXPECT_EQ(refused(R"({"token_ids":["a"]})"), "token_ids");
  EXPECT_EQ(refused(R"({"token_ids":[[1]]})"), "token_ids");
  EXPECT_EQ(refused(R"({"token_ids":[]})"), "token_ids");
}

TEST(TokensRequest, RefusesWhatItLacks) {
  const auto params = [](const std::string& fields) {
    return refused(R"({"token_ids":[1],"sampling_params":{)" + fields + "}}");
  };
  EXPECT_EQ(params(R"("prompt_logprobs":1)"), "sampling_params.prompt_logprobs");
  EXPECT_EQ(params(R"("bad_words":["x"])"), "sampling_params.bad_words");
  EXPECT_EQ(params(R"("logprobs":-1)"), "sampling_params.logprobs");
  EXPECT_EQ(params(R"("max_tokens":2,"min_tokens":3)"), "sampling_params.min_tokens");
  EXPECT_EQ(params(R"("structured_outputs":{"structural_tag":"a"})"),
            "sampling_params.structured_outputs.structural_tag");
  EXPECT_EQ(params(R"("max_new_tokens":2)"), "sampling_params.max_new_tokens");
  EXPECT_EQ(refused(R"({"token_ids":[1],"max_tokens":2})"), "max_tokens");
  EXPECT_EQ(refused(R"({"token_ids":[1],"features":{"image":1}})"), "features");
  EXPECT_EQ(refused(R"({"token_ids":[1],"request_id":")" + std::string(300, 'x') + R"("})"),
            "request_id");
}

}  // namespace
}  // namespace pdjob::openai
