#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "openai/sglang.h"

namespace pdjob::openai {
namespace {

ApiRequest parsed(const std::string& body) {
  auto result = parse_api_request(ApiKind::kSglang, body);
  if (!result) {
    ADD_FAILURE() << result.error().message << " for " << body;
    return {};
  }
  return *std::move(result);
}
ApiRequest with_params(const std::string& params) {
  return parsed(R"({"input_ids":[1,2],"sampling_params":{)" + params + "}}");
}
// Returns the wrong field.
std::string refused(const std::string& body) {
  const auto result = parse_api_request(ApiKind::kSglang, body);
  if (result) {
    return "accepted";
  }
  EXPECT_EQ(result.error().status, 400);
  return result.error().param;
}
std::string refused_params(const std::string& params) {
  return refused(R"({"input_ids":[1],"sampling_params":{)" + params + "}}");
}

TEST(SglangRequest, DefaultsAreSglangs) {
  const ApiRequest request = parsed(R"({"input_ids":[1,2]})");
  EXPECT_EQ(request.token_prompts, (std::vector<std::vector<Token>>{{1, 2}}));
  EXPECT_EQ(request.sampling, SamplingParams{});
  EXPECT_EQ(request.stop, StopParams{.max_tokens = 128});
  EXPECT_FALSE(request.fills_context);
  EXPECT_FALSE(request.stream || request.return_token_ids || request.prompts_listed);
  EXPECT_EQ(request.choices, 1U);
}

TEST(SglangRequest, ReadsEverySamplingField) {
  const ApiRequest request = with_params(
      R"("max_new_tokens":9,"temperature":7.5,"top_p":0.5,"top_k":40,"min_p":0.1,
         "frequency_penalty":2,"presence_penalty":-2,"repetition_penalty":1.5,"min_new_tokens":2,
         "n":3,"stop":["a","b"],"stop_token_ids":[7],"ignore_eos":true,"skip_special_tokens":false,
         "spaces_between_special_tokens":false,"no_stop_trim":true,"logit_bias":{"7":-100},
         "sampling_seed":42,"json_schema":"{}","custom_params":null,"regex":null)");
  const SamplingParams expected = {.temperature = 7.5F,
                                   .top_k = 40,
                                   .top_p = 0.5F,
                                   .min_p = 0.1F,
                                   .repetition_penalty = 1.5F,
                                   .presence_penalty = -2,
                                   .frequency_penalty = 2,
                                   .logit_bias = {{7, -100}},
                                   .seed = 42,
                                   .json_schema = "{}",
                                   .ignore_eos = true};
  EXPECT_EQ(request.sampling, expected);
  EXPECT_TRUE(request.seeded);
  EXPECT_EQ(request.choices, 3U);
  const StopParams stop = {.max_tokens = 9,
                           .min_tokens = 2,
                           .strings = {"a", "b"},
                           .token_ids = {7},
                           .include_stop_string = true,
                           .skip_special_tokens = false};
  EXPECT_EQ(request.stop, stop);
}

TEST(SglangRequest, TopKOfOneIsGreedy) {
  EXPECT_EQ(with_params(R"("temperature":0.8,"top_k":1)").sampling.temperature, 0.0F);
  EXPECT_EQ(with_params(R"("temperature":0.8,"top_k":-1)").sampling.top_k, 0);
}

TEST(SglangRequest, WithoutALimitItFillsTheContext) {
  EXPECT_TRUE(with_params(R"("max_new_tokens":null)").fills_context);
}

TEST(SglangRequest, TakesOnePromptOrAListOfThem) {
  EXPECT_EQ(parsed(R"({"text":"hi"})").prompts, std::vector<std::string>{"hi"});
  const ApiRequest texts = parsed(R"({"text":["a","b"]})");
  EXPECT_EQ(texts.prompts, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(texts.prompts_listed);
  const ApiRequest one = parsed(R"({"input_ids":[[1,2]]})");
  EXPECT_EQ(one.token_prompts, (std::vector<std::vector<Token>>{{1, 2}}));
  EXPECT_TRUE(one.prompts_listed) << "a list of one is answered with a list";
}

TEST(SglangRequest, RefusesPromptsOfTheWrongKind) {
  EXPECT_EQ(refused(R"({})"), "input_ids");
  EXPECT_EQ(refused(R"({"text":"a","input_ids":[1]})"), "input_ids");
  EXPECT_EQ(refused(R"({"input_ids":"a"})"), "input_ids");
  EXPECT_EQ(refused(R"({"input_ids":["a"]})"), "input_ids");
  EXPECT_EQ(refused(R"({"input_ids":[1,"a"]})"), "input_ids[1]");
  EXPECT_EQ(refused(R"({"input_ids":[1.5]})"), "input_ids[0]");
  EXPECT_EQ(refused(R"({"input_ids":[]})"), "input_ids");
  EXPECT_EQ(refused(R"({"text":[1]})"), "text");
  std::string many = "[[1]";
  for (size_t i = 0; i < limits::kPromptsMax; ++i) {
    many += ",[1]";
  }
  EXPECT_EQ(refused(R"({"input_ids":)" + many + "]}"), "input_ids");
}

TEST(SglangRequest, NamesPromptsByTheirRids) {
  EXPECT_EQ(parsed(R"({"text":"a","rid":"r"})").rids, std::vector<std::string>{"r"});
  EXPECT_EQ(parsed(R"({"text":["a","b"],"rid":"r"})").rids,
            (std::vector<std::string>{"r_0", "r_1"}));
  EXPECT_EQ(parsed(R"({"text":["a","b"],"rid":["x","y"]})").rids,
            (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(refused(R"({"text":["a","b"],"rid":["x"]})"), "rid");
  EXPECT_EQ(refused(R"({"text":"a","rid":""})"), "rid");
  EXPECT_EQ(refused(R"({"text":"a","rid":5})"), "rid");
  EXPECT_EQ(refused(R"({"text":"a","rid":")" + std::string(300, 'x') + R"("})"), "rid");
}

TEST(SglangRequest, MayScoreItsPromptAndGenerateNothing) {
  const ApiRequest scorer =
      parsed(R"({"input_ids":[1,2,3],"return_logprob":true,"logprob_start_len":1,
                 "sampling_params":{"max_new_tokens":0}})");
  EXPECT_EQ(scorer.logprob_start, 1U);
  EXPECT_TRUE(scorer.scores_prompt());
  EXPECT_EQ(scorer.stop.max_tokens, 0);
  EXPECT_FALSE(scorer.fills_context);
  EXPECT_FALSE(parsed(R"({"text":"a","logprob_start_len":0})").scores_prompt());
  EXPECT_FALSE(parsed(R"({"text":"a","return_logprob":true})").scores_prompt());
  EXPECT_EQ(refused(R"({"text":"a","return_logprob":true,"logprob_start_len":0,"stream":true})"),
            "stream");
}

TEST(SglangRequest, TheSamplingSeedMinusOneIsNone) {
  EXPECT_TRUE(with_params(R"("sampling_seed":3)").seeded);
  EXPECT_FALSE(with_params(R"("sampling_seed":-1)").seeded);
}

TEST(SglangRequest, LogprobsAreAtTemperature) {
  const ApiRequest request =
      parsed(R"({"text":"a","return_logprob":true,"top_logprobs_num":2,"logprob_start_len":-1,
                 "return_text_in_logprobs":true,"return_prompt_token_ids":true})");
  EXPECT_EQ(request.sampling.logprobs, 2);
  EXPECT_TRUE(request.sampling.logprobs_at_temperature);
  EXPECT_TRUE(request.text_in_logprobs && request.return_token_ids);
  EXPECT_EQ(parsed(R"({"text":"a","top_logprobs_num":2,"logprob_start_len":0})").sampling.logprobs,
            -1)
      << "without return_logprob there are none";
  EXPECT_EQ(refused(R"({"text":"a","return_logprob":true,"token_ids_logprob":[1]})"),
            "token_ids_logprob");
  EXPECT_EQ(refused(R"({"text":"a","return_logprob":"yes"})"), "return_logprob");
}

TEST(SglangRequest, BoundsTheLogprobsOfACumulativeStream) {
  const auto streamed = [](const std::string& tokens, const std::string& top) {
    return refused(R"({"text":"a","stream":true,"return_logprob":true,"top_logprobs_num":)" + top +
                   R"(,"sampling_params":{"max_new_tokens":)" + tokens + "}}");
  };
  EXPECT_EQ(streamed("4096", "0"), "accepted");
  EXPECT_EQ(streamed("4096", "20"), "stream");
  EXPECT_EQ(streamed("100000", "0"), "stream");
  EXPECT_EQ(streamed("null", "0"), "stream");
}

TEST(SglangRequest, RefusesWhatItLacksWhereItWouldChangeTheReply) {
  EXPECT_EQ(refused_params(R"("regex":"a+","ebnf":"x")"), "sampling_params.regex");
  EXPECT_EQ(refused_params(R"("stop_regex":["a+"])"), "sampling_params.stop_regex");
  EXPECT_EQ(refused_params(R"("max_new_tokens":-2)"), "sampling_params.max_new_tokens");
  EXPECT_EQ(refused_params(R"("temperature":-1)"), "sampling_params.temperature");
  EXPECT_EQ(refused_params(R"("temperature":"1")"), "sampling_params.temperature");
  EXPECT_EQ(refused_params(R"("stop":[1])"), "sampling_params.stop[0]");
  EXPECT_EQ(refused_params(R"("max_new_tokens":4,"min_new_tokens":5)"),
            "sampling_params.min_new_tokens");
  EXPECT_EQ(refused(R"({"text":"a","sampling_params":[{}]})"), "sampling_params");
  EXPECT_EQ(refused(R"({"text":"a","lora_path":"x"})"), "lora_path");
  EXPECT_EQ(refused(R"({"text":"a","return_hidden_states":true})"), "return_hidden_states");
  EXPECT_EQ(refused(R"({"text":"a","return_routed_experts":true})"), "return_routed_experts");
}

TEST(SglangRequest, ASamplingParameterOfAnotherServerIsRefusedByName) {
  EXPECT_EQ(refused_params(R"("max_tokens":2)"), "sampling_params.max_tokens");
  EXPECT_EQ(refused_params(R"("seed":2)"), "sampling_params.seed");
  EXPECT_EQ(refused_params(R"("max_new_token":2)"), "sampling_params.max_new_token");
  EXPECT_EQ(refused_params(R"("max_tokens":null,"unknown":null)"), "accepted");
  EXPECT_EQ(refused(R"({"text":"a","max_new_tokens":2})"), "max_new_tokens");
  EXPECT_EQ(refused(R"({"text":"a","temperature":0})"), "temperature");
}

TEST(SglangRequest, IgnoresFieldsItDoesNotKnow) {
  parsed(R"({"text":"a","sampling_params":{"whatever":null},"priority":1,"routing_key":"k",
             "lora_path":null,"return_hidden_states":false,"odd":{}})");
}

TEST(SglangRequest, ASaltOrAnExtraKeyKeepsItsPromptApart) {
  EXPECT_EQ(parsed(R"({"text":"a","cache_salt":"s","extra_key":"e"})").cache_salt, "s");
  EXPECT_EQ(parsed(R"({"text":"a","extra_key":"e"})").cache_salt, "e");
}

TEST(SglangRequest, ReadsTheHandOver) {
  EXPECT_TRUE(
      parsed(R"({"input_ids":[1],"kv_transfer_params":{"do_remote_decode":true}})").kv_transfer);
  EXPECT_EQ(parsed(R"({"input_ids":[1],"bootstrap_host":"h","bootstrap_port":9,
                       "bootstrap_room":3})")
                .bootstrap->room,
            3U);
  EXPECT_EQ(parsed(R"({"input_ids":[1],"pdjob_resume":[[4,5]]})").resumed,
            (std::vector<std::vector<Token>>{{4, 5}}));
}

TEST(SglangRequest, ReadsWhichWeightsMadeResumedTokens) {
  const auto with_weights = [](const std::string& weights) {
    return R"({"input_ids":[1],"pdjob_resume":[[4,5,6]],"pdjob_resume_weights":)" + weights + "}";
  };
  const std::vector<WeightSpan> expected = {{"v1", 0, 2}, {"v2", 2, 3}};
  EXPECT_EQ(parsed(with_weights(R"([[{"version":"7631","start":0,"end":2},
                                     {"version":"7632","start":2,"end":3}]])"))
                .resumed_weights,
            std::vector<std::vector<WeightSpan>>{expected});
  for (const char* wrong :
       {R"([[{"version":"7631","start":0,"end":2}]])",
        R"([[{"version":"7631","start":1,"end":3}]])", R"([[{"version":"","start":0,"end":3}]])",
        R"([[{"version":"763","start":0,"end":3}]])", R"([[{"version":"zz","start":0,"end":3}]])",
        R"([[5]])", R"([5])", R"([[],[]])", "5"}) {
    EXPECT_NE(refused(with_weights(wrong)), "accepted") << wrong;
  }
}

}  // namespace
}  // namespace pdjob::openai
