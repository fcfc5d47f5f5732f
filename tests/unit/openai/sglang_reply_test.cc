#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "openai/sglang.h"

namespace pdjob::openai {
namespace {

using nlohmann::json;

void append_piece(Token token, std::string& out) { out += "<" + std::to_string(token) + ">"; }

SglangReplyWriter writer_of(ReplyOptions options) {
  options.kind = ApiKind::kSglang;
  options.id = "7";
  return {std::move(options), append_piece};
}

const std::vector<GeneratedToken> kTwo = {
    {.token = 4, .logprob = -0.1F, .top = {{4, -0.1F}, {5, -2.5F}}},
    {.token = 9, .logprob = -1.0F, .top = {{9, -1.0F}}}};
const std::vector<WeightSpan> kWeights = {{"a", 0, 1}, {"b", 1, 2}};

json whole(ReplyOptions options, const std::vector<ReplyPart>& parts, std::string_view kv = {}) {
  std::string out;
  writer_of(std::move(options)).append_whole(out, parts, {}, kv);
  return json::parse(out);
}

// The objects of a stream; the last event must be [DONE].
std::vector<json> events_of(const std::string& stream) {
  std::vector<json> events;
  bool done = false;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    const std::string event = stream.substr(at, end - at);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    done = event == "data: [DONE]";
    if (!done) {
      events.push_back(json::parse(event.substr(6)));
    }
    at = end + 2;
  }
  EXPECT_TRUE(done);
  return events;
}

TEST(SglangReply, HasTheLogprobsOfThePromptFromWhereTheyAreAsked) {
  const std::vector<Token> prompt = {1, 7, 8};
  const PromptLogprobs scored{.alternatives = 1, .logprobs = {-1, -2}, .top = {{5, -3}, {6, -4}}};
  const ReplyPart part{
      .finish = FinishReason::kLength, .prompt = prompt, .prompt_logprobs = &scored};
  json meta = whole({.logprobs = true, .logprob_start = 0}, {part})["meta_info"];
  EXPECT_EQ(meta["input_token_logprobs"],
            json::parse("[[null,1,null],[-1.0,7,null],[-2.0,8,null]]"));
  EXPECT_EQ(meta["finish_reason"], json({{"type", "length"}, {"length", 0}}));
  EXPECT_EQ(meta["output_token_logprobs"], json::array());
  EXPECT_FALSE(meta.contains("input_top_logprobs"));
  meta =
      whole({.logprobs = true, .alternatives = true, .text_in_logprobs = true, .logprob_start = 1},
            {part})["meta_info"];
  EXPECT_EQ(meta["input_token_logprobs"], json::parse(R"([[null,7,"<7>"],[-2.0,8,"<8>"]])"));
  EXPECT_EQ(meta["input_top_logprobs"], json::parse(R"([null,[[-4.0,6,"<6>"]]])"));
}

TEST(SglangReply, HasTextIdsAndMetaInfo) {
  const json reply = whole({.logprobs = true}, {{.text = "a\"b",
                                                 .tokens = kTwo,
                                                 .finish = FinishReason::kStop,
                                                 .prompt_tokens = 3,
                                                 .cached_tokens = 2,
                                                 .seconds = 0.25,
                                                 .stop_token = 9,
                                                 .weight_version = "b",
                                                 .weights = kWeights}});
  EXPECT_EQ(reply["text"], "a\"b");
  EXPECT_EQ(reply["output_ids"], json({4, 9}));
  EXPECT_FALSE(reply.contains("prompt_token_ids") || reply.contains("index"));
  const json& meta = reply["meta_info"];
  EXPECT_EQ(meta["id"], "7");
  EXPECT_EQ(meta["prompt_tokens"], 3);
  EXPECT_EQ(meta["completion_tokens"], 2);
  EXPECT_EQ(meta["cached_tokens"], 2);
  EXPECT_EQ(meta["e2e_latency"], 0.25);
  EXPECT_EQ(meta["finish_reason"], json({{"type", "stop"}, {"matched", 9}}));
  EXPECT_EQ(meta["weight_version"], "b");
  EXPECT_EQ(meta["weight_versions"], json::parse(R"([{"version":"a","start":0,"end":1},
                                                     {"version":"b","start":1,"end":2}])"));
  EXPECT_EQ(meta["output_token_logprobs"].size(), 2U);
  EXPECT_EQ(meta["output_token_logprobs"][0][1], 4);
  EXPECT_EQ(meta["output_token_logprobs"][0][2], nullptr);
  EXPECT_FALSE(meta.contains("output_top_logprobs"));
}

TEST(SglangReply, LogprobsReadBackAsTheSameNumbers) {
  std::vector<GeneratedToken> tokens;
  for (const float logprob : {-0.1F, -1.17549435e-38F, -123.456789F, 0.0F}) {
    tokens.push_back({.token = 1, .logprob = logprob});
  }
  const json reply = whole({.logprobs = true}, {{.tokens = tokens}});
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(reply["meta_info"]["output_token_logprobs"][i][0].get<double>(),
              static_cast<double>(tokens[i].logprob));
  }
}

TEST(SglangReply, HasNoInfinityAndNoNan) {
  const std::vector<GeneratedToken> tokens = {
      {.token = 1, .logprob = -INFINITY},
      {.token = 2, .logprob = std::numeric_limits<float>::quiet_NaN()}};
  const json reply = whole({.logprobs = true}, {{.tokens = tokens}});
  EXPECT_EQ(reply["meta_info"]["output_token_logprobs"][0][0], -9999.0);
  EXPECT_EQ(reply["meta_info"]["output_token_logprobs"][1][0], -9999.0);
}

TEST(SglangReply, ShowsAlternativesAndTexts) {
  const json reply =
      whole({.logprobs = true, .alternatives = true, .text_in_logprobs = true}, {{.tokens = kTwo}});
  const json& meta = reply["meta_info"];
  EXPECT_EQ(meta["output_token_logprobs"][0][2], "<4>");
  ASSERT_EQ(meta["output_top_logprobs"].size(), 2U);
  EXPECT_EQ(meta["output_top_logprobs"][0].size(), 2U);
  EXPECT_EQ(meta["output_top_logprobs"][0][1], json({-2.5, 5, "<5>"}));
  EXPECT_EQ(meta["output_top_logprobs"][1][0][1], 9);
}

TEST(SglangReply, SaysWhyItEnded) {
  const auto reason = [](const ReplyPart& part) {
    return whole({}, {part})["meta_info"]["finish_reason"];
  };
  EXPECT_EQ(reason({.finish = FinishReason::kStop, .stop_string = "END"}),
            json({{"type", "stop"}, {"matched", "END"}}));
  EXPECT_EQ(reason({.tokens = kTwo, .finish = FinishReason::kLength}),
            json({{"type", "length"}, {"length", 2}}));
  EXPECT_EQ(reason({.finish = FinishReason::kAbort})["type"], "abort");
  EXPECT_EQ(reason({}), nullptr);
}

TEST(SglangReply, WithoutTokensHasAnEmptyListOfLogprobs) {
  const json reply = whole({.logprobs = true, .alternatives = true},
                           {{.finish = FinishReason::kAbort, .weight_version = "v"}});
  EXPECT_EQ(reply["output_ids"], json::array());
  EXPECT_EQ(reply["meta_info"]["output_token_logprobs"], json::array());
  EXPECT_EQ(reply["meta_info"]["output_top_logprobs"], json::array());
  EXPECT_EQ(reply["meta_info"]["weight_version"], "v");
  EXPECT_EQ(reply["meta_info"]["weight_versions"], json::array());
}

TEST(AbortedReply, HasTheAskedForm) {
  const auto reply = [](ApiKind kind, const std::string& body) {
    const auto parsed = parse_api_request(kind, body);
    EXPECT_TRUE(parsed) << parsed.error().message;
    return aborted_reply(*parsed, reply_options(*parsed), {.weight_version = "v"});
  };
  const json list = json::parse(reply(
      ApiKind::kSglang,
      R"({"input_ids":[[1],[2,3]],"rid":["a","b"],"return_logprob":true,"sampling_params":{"n":2,"temperature":1}})"));
  ASSERT_EQ(list.size(), 4U);
  const json& meta = list[2]["meta_info"];
  EXPECT_EQ(meta["id"], "b_0");
  EXPECT_EQ(meta["finish_reason"]["type"], "abort");
  EXPECT_EQ(meta["prompt_tokens"], 2);
  EXPECT_EQ(meta["output_token_logprobs"], json::array());
  EXPECT_EQ(meta["weight_version"], "v");
  const auto events =
      events_of(reply(ApiKind::kSglang, R"({"input_ids":[1],"stream":true,"rid":"a"})"));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["meta_info"]["finish_reason"]["type"], "abort");
  const json chat = json::parse(reply(
      ApiKind::kChat,
      R"({"messages":[{"role":"system","content":"x"},{"role":"user","content":"y"}],"n":2})"));
  EXPECT_EQ(chat["choices"].size(), 2U);
  EXPECT_EQ(chat["choices"][1]["finish_reason"], "abort");
  const json completion =
      json::parse(reply(ApiKind::kCompletion, R"({"prompt":[1,2],"return_token_ids":true})"));
  EXPECT_EQ(completion["choices"][0]["prompt_token_ids"], json({1, 2}));
  EXPECT_EQ(completion["usage"]["prompt_tokens"], 2);
}

TEST(SglangReply, IsAListOfSeveralChoices) {
  const json reply = whole({.rids = {"x", "y"}, .choices = 4, .choices_per_prompt = 2},
                           {{.choice = 0}, {.choice = 1}, {.choice = 2}, {.choice = 3}});
  ASSERT_EQ(reply.size(), 4U);
  EXPECT_EQ(reply[0]["meta_info"]["id"], "x_0");
  EXPECT_EQ(reply[3]["meta_info"]["id"], "y_1");
  EXPECT_EQ(reply[3]["index"], 3);
  EXPECT_TRUE(whole({.list = true}, {{}}).is_array()) << "a list of one prompt";
  EXPECT_EQ(whole({.choices = 2}, {{.choice = 0}, {.choice = 1}})[1]["meta_info"]["id"], "7_1");
  EXPECT_EQ(whole({.rids = {"x"}}, {{}})["meta_info"]["id"], "x");
}

TEST(SglangReply, OfAPrefillWorkerIsOneObjectWithTheParams) {
  const json reply = whole({.list = true}, {{}}, R"({"a":1})");
  EXPECT_EQ(reply["kv_transfer_params"]["a"], 1);
}

TEST(SglangReply, ShowsThePromptIfAsked) {
  const std::vector<Token> prompt = {3, 1};
  EXPECT_EQ(whole({.return_token_ids = true}, {{.prompt = prompt}})["prompt_token_ids"],
            json({3, 1}));
}

TEST(SglangStream, IsCumulative) {
  SglangReplyWriter writer = writer_of({.logprobs = true});
  std::string out;
  writer.append_part(out, {.text = "a\n", .tokens = std::span(kTwo).first(1)});
  writer.append_part(out, {});
  writer.append_part(
      out, {.text = "b", .tokens = std::span(kTwo).last(1), .finish = FinishReason::kLength});
  writer.append_end(out, {});
  const auto events = events_of(out);
  ASSERT_EQ(events.size(), 2U) << "a part that shows nothing is no event";
  EXPECT_EQ(events[0]["text"], "a\n");
  EXPECT_EQ(events[0]["output_ids"], json({4}));
  EXPECT_EQ(events[0]["meta_info"]["finish_reason"], nullptr);
  EXPECT_EQ(events[1]["text"], "a\nb");
  EXPECT_EQ(events[1]["output_ids"], json({4, 9}));
  EXPECT_EQ(events[1]["meta_info"]["completion_tokens"], 2);
  EXPECT_EQ(events[1]["meta_info"]["output_token_logprobs"].size(), 2U);
}

TEST(SglangStream, SaysWhichChoiceAnEventIsOf) {
  SglangReplyWriter writer = writer_of({.choices = 2, .choices_per_prompt = 2});
  std::string out;
  writer.append_part(out, {.choice = 1, .text = "x", .tokens = kTwo});
  writer.append_part(out, {.choice = 0, .text = "y", .tokens = std::span(kTwo).first(1)});
  writer.append_end(out, {});
  const auto events = events_of(out);
  EXPECT_EQ(events[0]["index"], 1);
  EXPECT_EQ(events[1]["index"], 0);
  EXPECT_EQ(events[1]["output_ids"], json({4}));
}

}  // namespace
}  // namespace pdjob::openai
