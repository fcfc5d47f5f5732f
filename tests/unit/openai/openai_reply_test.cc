#include "openai/openai_reply.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pdjob::openai {
namespace {

// Token 1 is "Hi", 2 and 3 are the halves of one character, the rest are "<N>".
void append_piece(Token token, std::string& out) {
  if (token == 1) {
    out += "Hi";
  } else if (token == 2) {
    out += '\xc3';
  } else if (token == 3) {
    out += '\xa9';
  } else {
    out += "<" + std::to_string(token) + ">";
  }
}

ReplyWriter writer_of(ReplyOptions options) {
  options.id = "7";
  options.model = "m";
  options.created = 5;
  return {std::move(options), append_piece};
}

const std::vector<Token> kPrompt = {9, 8};
const std::vector<GeneratedToken> kHi = {
    {.token = 1, .logprob = -0.5F, .top = {{1, -0.5F}, {4, -1.25F}}}};

constexpr std::string_view kChatHead =
    R"(data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":5,"model":"m","choices":[)";
constexpr std::string_view kTextHead =
    R"(data: {"id":"cmpl-7","object":"text_completion","created":5,"model":"m","choices":[)";

std::string event(std::string_view head, std::string_view rest) {
  return std::string(head) + std::string(rest) + "\n\n";
}

TEST(ReplyStream, CallsOfToolsAreDeltasWithAnIndex) {
  ReplyWriter writer = writer_of({.kind = ApiKind::kChat, .tools = true});
  const std::vector<ToolCallPart> begin = {{.index = 0, .id = "call_1", .name = "f"}};
  const std::vector<ToolCallPart> more = {{.index = 0, .arguments = "{\"a\""}};
  std::string out;
  writer.append_part(out, {.text = ""});
  EXPECT_EQ(out, "") << "text that is held back";
  writer.append_part(out, {.calls = begin});
  writer.append_part(out, {.calls = more});
  writer.append_part(out, {.finish = FinishReason::kStop, .ends_in_calls = true});
  EXPECT_EQ(
      out,
      event(
          kChatHead,
          R"({"index":0,"delta":{"role":"assistant","content":null},"logprobs":null,"finish_reason":null}]})") +
          event(
              kChatHead,
              R"({"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]},"logprobs":null,"finish_reason":null}]})") +
          event(
              kChatHead,
              R"({"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]},"logprobs":null,"finish_reason":null}]})") +
          event(kChatHead,
                R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]})"));
}

TEST(ReplyWhole, CallsOfToolsAreInTheMessage) {
  const auto choice = [](const ReplyPart& part) {
    ReplyWriter writer = writer_of({.kind = ApiKind::kChat, .tools = true});
    std::string out;
    writer.append_whole(out, {&part, 1}, {}, {});
    return nlohmann::json::parse(out)["choices"][0];
  };
  const std::vector<ToolCallPart> calls = {
      {.index = 0, .id = "call_1", .name = "f", .arguments = "{}"},
      {.index = 1, .id = "call_2", .name = "g", .arguments = "{\"a\":1}"}};
  auto reply = choice({.finish = FinishReason::kStop, .calls = calls, .ends_in_calls = true});
  EXPECT_EQ(reply["finish_reason"], "tool_calls");
  EXPECT_EQ(reply["message"], nlohmann::json::parse(R"({"role":"assistant","content":null,
      "tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}},
                    {"id":"call_2","type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}]})"));
  reply = choice({.text = "Hi", .finish = FinishReason::kLength, .calls = {calls.data(), 1}});
  EXPECT_EQ(reply["finish_reason"], "length");
  EXPECT_EQ(reply["message"]["content"], "Hi");
  reply = choice({.text = "Hi", .finish = FinishReason::kStop});
  EXPECT_EQ(reply["finish_reason"], "stop");
  EXPECT_FALSE(reply["message"].contains("tool_calls"));
}

TEST(ReplyWhole, CallsOfFunctionsHaveTheOldForm) {
  const std::vector<ToolCallPart> calls = {
      {.index = 0, .id = "call_1", .name = "f", .arguments = "{}"}};
  ReplyWriter writer = writer_of({.kind = ApiKind::kChat, .tools = true, .legacy_functions = true});
  const ReplyPart part{.finish = FinishReason::kStop, .calls = calls, .ends_in_calls = true};
  std::string out;
  writer.append_whole(out, {&part, 1}, {}, {});
  const auto reply = nlohmann::json::parse(out)["choices"][0];
  EXPECT_EQ(reply["finish_reason"], "function_call");
  EXPECT_EQ(reply["message"], nlohmann::json::parse(R"({"role":"assistant","content":null,
      "function_call":{"name":"f","arguments":"{}"}})"));
}

TEST(ReplyStream, CallsOfFunctionsHaveTheOldForm) {
  ReplyWriter writer = writer_of({.kind = ApiKind::kChat, .tools = true, .legacy_functions = true});
  const std::vector<ToolCallPart> begin = {{.index = 0, .id = "call_1", .name = "f"}};
  const std::vector<ToolCallPart> more = {{.index = 0, .arguments = "{}"}};
  std::string out;
  writer.append_part(out, {.calls = begin});
  writer.append_part(out, {.finish = FinishReason::kStop, .calls = more, .ends_in_calls = true});
  EXPECT_NE(out.find(R"("delta":{"function_call":{"name":"f","arguments":""}})"),
            std::string::npos);
  EXPECT_NE(out.find(R"("delta":{"function_call":{"arguments":"{}"}},"logprobs":null,)"
                     R"("finish_reason":"function_call")"),
            std::string::npos);
}

TEST(ReplyStream, ChatBeginsWithTheRoleAndEndsWithDone) {
  ReplyWriter writer = writer_of({.kind = ApiKind::kChat});
  std::string out;
  writer.append_part(out, {.text = "Hi\n", .tokens = kHi});
  writer.append_part(out, {.text = "", .finish = FinishReason::kLength});
  writer.append_end(out, {});
  EXPECT_EQ(
      out,
      event(
          kChatHead,
          R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})") +
          event(
              kChatHead,
              R"({"index":0,"delta":{"content":"Hi\n"},"logprobs":null,"finish_reason":null}]})") +
          event(
              kChatHead,
              R"({"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"length"}]})") +
          "data: [DONE]\n\n");
}

TEST(ReplyStream, CompletionHasTextAndIndex) {
  ReplyWriter writer = writer_of({.choices = 2});
  std::string out;
  writer.append_part(out, {.choice = 1, .text = "a"});
  writer.append_part(out, {.choice = 0, .text = "b", .finish = FinishReason::kStop});
  EXPECT_EQ(
      out,
      event(kTextHead, R"({"index":1,"text":"a","logprobs":null,"finish_reason":null}]})") +
          event(kTextHead, R"({"index":0,"text":"b","logprobs":null,"finish_reason":"stop"}]})"));
}

TEST(ReplyStream, APartThatShowsNothingAppendsNothing) {
  ReplyWriter writer = writer_of({.kind = ApiKind::kChat});
  std::string out;
  writer.append_part(out, {.text = "", .tokens = kHi});
  EXPECT_EQ(out, "");
}

TEST(ReplyStream, UsageIsNullUntilTheLastEvent) {
  ReplyWriter writer = writer_of({.include_usage = true});
  std::string out;
  writer.append_part(out, {.text = "a"});
  writer.append_end(out, {.prompt_tokens = 3, .completion_tokens = 4});
  EXPECT_EQ(
      out,
      event(kTextHead,
            R"({"index":0,"text":"a","logprobs":null,"finish_reason":null}],"usage":null})") +
          event(
              kTextHead,
              R"(],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}})") +
          "data: [DONE]\n\n");
}

TEST(ReplyStream, ChatTellsThePromptIdsOnceAndTokenIdsAlways) {
  ReplyWriter writer = writer_of({.kind = ApiKind::kChat, .choices = 2, .return_token_ids = true});
  std::string out;
  writer.append_part(out, {.choice = 1, .text = "", .tokens = kHi, .prompt = kPrompt});
  writer.append_part(out, {.choice = 0, .text = "x", .tokens = kHi, .prompt = kPrompt});
  EXPECT_EQ(
      out,
      event(
          kChatHead,
          R"({"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[9,8]})") +
          event(
              kChatHead,
              R"({"index":1,"delta":{"content":""},"logprobs":null,"finish_reason":null,"token_ids":[1]}]})") +
          event(
              kChatHead,
              R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})") +
          event(
              kChatHead,
              R"({"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null,"token_ids":[1]}]})"));
}

TEST(ReplyStream, CompletionTellsThePromptIdsInEachChoicesFirstEvent) {
  ReplyWriter writer = writer_of({.return_token_ids = true});
  std::string out;
  writer.append_part(out, {.text = "a", .tokens = kHi, .prompt = kPrompt});
  writer.append_part(out, {.text = "b", .tokens = kHi, .prompt = kPrompt});
  EXPECT_EQ(
      out,
      event(
          kTextHead,
          R"({"index":0,"text":"a","logprobs":null,"finish_reason":null,"token_ids":[1],"prompt_token_ids":[9,8]}]})") +
          event(
              kTextHead,
              R"({"index":0,"text":"b","logprobs":null,"finish_reason":null,"token_ids":[1]}]})"));
}

TEST(ReplyStream, AnErrorIsAnEvent) {
  std::string out;
  append_error_event(out, to_api_error({ErrorCode::kUnavailable, "gone"}));
  EXPECT_EQ(out,
            "data: "
            "{\"error\":{\"message\":\"gone\",\"type\":\"server_error\",\"param\":null,\"code\":"
            "\"unavailable\"}}\n\n");
}

TEST(ReplyLogprobs, OfAChatHoldBytesAndAlternatives) {
  ReplyWriter writer = writer_of({.kind = ApiKind::kChat, .logprobs = true});
  std::string out;
  writer.append_whole(
      out, std::vector<ReplyPart>{{.text = "Hi", .tokens = kHi, .finish = FinishReason::kStop}}, {},
      "");
  EXPECT_EQ(nlohmann::json::parse(out)["choices"][0]["logprobs"].dump(),
            nlohmann::json::parse(R"({"content":[
      {"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[
        {"token":"Hi","logprob":-0.5,"bytes":[72,105]},{"token":"<4>","logprob":-1.25,"bytes":[60,52,62]}]}]})")
                .dump());
}

TEST(ReplyLogprobs, OffsetsGoOnOverTheEventsOfAStream) {
  ReplyWriter writer = writer_of({.logprobs = true});
  const std::vector<GeneratedToken> halves = {{.token = 2}, {.token = 3}, {.token = 1}};
  std::string out;
  writer.append_part(out, {.text = "Hi", .tokens = kHi});
  writer.append_part(out, {.text = "\u00e9Hi", .tokens = halves});
  EXPECT_NE(
      out.find(
          R"("logprobs":{"text_offset":[0],"token_logprobs":[-0.5],"tokens":["Hi"],"top_logprobs":[{"Hi":-0.5,"<4>":-1.25}]})"),
      std::string::npos)
      << out;
  // Both halves of the character begin at its start, or right after it.
  EXPECT_NE(out.find(R"("text_offset":[2,3,3])"), std::string::npos) << out;
}

TEST(ReplyLogprobs, AreNeverInfinite) {
  ReplyWriter writer = writer_of({.logprobs = true});
  const std::vector<GeneratedToken> tokens = {
      {.token = 1, .logprob = -std::numeric_limits<float>::infinity()},
      {.token = 1, .logprob = std::numeric_limits<float>::quiet_NaN()}};
  std::string out;
  writer.append_part(out, {.text = "HiHi", .tokens = tokens});
  EXPECT_NE(out.find(R"("token_logprobs":[-9999,-9999])"), std::string::npos) << out;
}

TEST(ReplyLogprobs, NameTokensByIdOnRequest) {
  for (const ApiKind kind : {ApiKind::kChat, ApiKind::kCompletion}) {
    ReplyWriter writer = writer_of({.kind = kind, .logprobs = true, .tokens_as_ids = true});
    std::string out;
    writer.append_part(out, {.text = "Hi", .tokens = kHi});
    EXPECT_NE(out.find("\"token_id:1\""), std::string::npos) << out;
    EXPECT_NE(out.find("\"token_id:4\""), std::string::npos) << out;
  }
}

TEST(ReplyWhole, Chat) {
  ReplyWriter writer = writer_of({.kind = ApiKind::kChat, .return_token_ids = true});
  std::string out;
  writer.append_whole(out,
                      std::vector<ReplyPart>{{.text = "Hi",
                                              .tokens = kHi,
                                              .finish = FinishReason::kStop,
                                              .prompt = kPrompt,
                                              .weight_version = "v"}},
                      {.prompt_tokens = 2, .completion_tokens = 1}, R"({"remote_port":1})");
  EXPECT_EQ(
      out,
      R"({"id":"chatcmpl-7","object":"chat.completion","created":5,"model":"m","choices":[)"
      R"({"index":0,"message":{"role":"assistant","content":"Hi"},"logprobs":null,"finish_reason":"stop","token_ids":[1],)"
      R"("weight_version":"v","weight_versions":[]}],)"
      R"("usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0}},"weight_version":"v","prompt_token_ids":[9,8],"kv_transfer_params":{"remote_port":1}})");
}

TEST(ReplyWhole, WeightVersionsComeWithoutTokenIdsIfTheyAreAsked) {
  ReplyWriter writer = writer_of({.return_weight_versions = true});
  const std::vector<WeightSpan> weights = {{.version = "v", .start = 0, .end = 1}};
  std::string out;
  writer.append_whole(
      out,
      std::vector<ReplyPart>{
          {.text = "Hi", .tokens = kHi, .finish = FinishReason::kStop, .weights = weights}},
      {.prompt_tokens = 2, .completion_tokens = 1}, "");
  EXPECT_NE(out.find(R"("weight_versions":[{"version":"v","start":0,"end":1}]})"),
            std::string::npos);
  EXPECT_EQ(out.find("token_ids"), std::string::npos);
}

TEST(ReplyWhole, CompletionWithTwoChoices) {
  ReplyWriter writer = writer_of({.choices = 2, .return_token_ids = true});
  std::string out;
  writer.append_whole(
      out,
      std::vector<ReplyPart>{
          {.choice = 0, .text = "a", .finish = FinishReason::kStop, .prompt = kPrompt},
          {.choice = 1, .text = "b", .finish = FinishReason::kLength, .prompt = kPrompt}},
      {.prompt_tokens = 2, .completion_tokens = 2}, "");
  EXPECT_EQ(
      out,
      R"({"id":"cmpl-7","object":"text_completion","created":5,"model":"m","choices":[)"
      R"({"index":0,"text":"a","logprobs":null,"finish_reason":"stop","token_ids":[],"prompt_token_ids":[9,8],"weight_version":"","weight_versions":[]},)"
      R"({"index":1,"text":"b","logprobs":null,"finish_reason":"length","token_ids":[],"prompt_token_ids":[9,8],"weight_version":"","weight_versions":[]}],)"
      R"("usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":0}},"weight_version":"","kv_transfer_params":null})");
}

// OpenAI's shape: the first token has no logprob, and offsets count characters of the whole text.
TEST(ReplyWhole, LogprobsOfTheEchoedPromptComeBeforeThoseOfTheOutput) {
  ReplyWriter writer = writer_of({.logprobs = true});
  const std::vector<Token> prompt = {1, 2, 3, 9};
  const PromptLogprobs of_prompt{.alternatives = 1,
                                 .logprobs = {-1.5F, -INFINITY, -2.0F},
                                 .top = {{2, -1.5F}, {4, -0.5F}, {8, -1.0F}}};
  std::string out;
  writer.append_whole(out,
                      std::vector<ReplyPart>{{.text = "Hi\xc3\xa9<9>Hi",
                                              .tokens = kHi,
                                              .finish = FinishReason::kLength,
                                              .prompt = prompt,
                                              .prompt_logprobs = &of_prompt}},
                      {.prompt_tokens = 4, .completion_tokens = 1}, "");
  const auto reply = nlohmann::json::parse(out);
  const auto& logprobs = reply["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["token_logprobs"].dump(), "[null,-1.5,-9999,-2,-0.5]");
  EXPECT_EQ(logprobs["text_offset"].dump(), "[0,2,3,3,6]");
  EXPECT_EQ(logprobs["tokens"].size(), 5U);
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 1U) << "the token itself is the most likely one";
  EXPECT_EQ(logprobs["top_logprobs"][3].dump(), R"({"<8>":-1,"<9>":-2})");
  EXPECT_EQ(logprobs["top_logprobs"][4].dump(), R"({"<4>":-1.25,"Hi":-0.5})");
  EXPECT_FALSE(reply["choices"][0].contains("prompt_token_ids"));
}

TEST(ReplyStream, LogprobsOfTheEchoedPromptAreInTheFirstEventOfAChoiceOnly) {
  ReplyWriter writer = writer_of({.choices = 2, .choices_per_prompt = 2, .logprobs = true});
  const PromptLogprobs of_prompt{.logprobs = {-1.5F}};
  const auto offsets = [&](uint32_t choice, std::string_view text) {
    std::string out;
    writer.append_part(out, {.choice = choice,
                             .text = text,
                             .tokens = kHi,
                             .prompt = kPrompt,
                             .prompt_logprobs = &of_prompt});
    return nlohmann::json::parse(out.substr(5))["choices"][0]["logprobs"]["text_offset"].dump();
  };
  EXPECT_EQ(offsets(0, "<9><8>Hi"), "[0,3,6]");
  EXPECT_EQ(offsets(0, "Hi"), "[8]");
  EXPECT_EQ(offsets(1, "<9><8>Hi"), "[0,3,6]");
}

TEST(ReplyWhole, ModelNamesAreEscaped) {
  ReplyWriter writer({.id = "1", .model = "a\"b\n"}, append_piece);
  std::string out;
  writer.append_whole(out, {}, {}, "");
  EXPECT_EQ(nlohmann::json::parse(out)["model"], "a\"b\n");
}

TEST(ReplyOptions, CountChoicesOverPrompts) {
  ApiRequest request;
  request.prompts = {"a", "b", "c"};
  request.choices = 2;
  request.sampling.logprobs = 0;
  const ReplyOptions options = reply_options(request);
  EXPECT_EQ(options.choices, 6U);
  EXPECT_TRUE(options.logprobs);
}

TEST(ModelsBody, ListsModels) {
  EXPECT_EQ(
      models_body(std::vector<ModelCard>{{.id = "m", .created = 5, .context_max = 2048}}),
      R"({"object":"list","data":[{"id":"m","object":"model","created":5,"owned_by":"pdjob","root":"m","parent":null,"max_model_len":2048}]})");
  EXPECT_EQ(models_body(std::vector<ModelCard>{{.id = "m"}}).find("max_model_len"),
            std::string::npos)
      << "unknown";
}

TEST(ModelBody, IsOneOfTheList) {
  const std::vector<ModelCard> models = {{.id = "m"}, {.id = "org/name 1", .created = 5}};
  const std::string card =
      R"({"id":"org/name 1","object":"model","created":5,"owned_by":"pdjob","root":"org/name 1","parent":null})";
  for (const char* encoded : {"org%2Fname%201", "org%2fname 1", "org/name%201"}) {
    EXPECT_EQ(*model_body(models, encoded), card) << encoded;
  }
  for (const char* encoded : {"nope", "org", "m%", "m%2", "m%zz", "%00", "\xff"}) {
    const auto body = model_body(models, encoded);
    ASSERT_FALSE(body) << encoded;
    EXPECT_EQ(body.error().status, 404);
    EXPECT_EQ(body.error().code, "model_not_found");
  }
}

TEST(ReplyStream, ContinuousUsageIsOfTheChoiceSoFar) {
  ReplyWriter writer =
      writer_of({.kind = ApiKind::kChat, .include_usage = true, .continuous_usage = true});
  std::string out;
  writer.append_part(out, {.text = "a", .prompt_tokens = 3, .completion_tokens = 1});
  writer.append_part(out, {.text = "b",
                           .finish = FinishReason::kStop,
                           .prompt_tokens = 3,
                           .cached_tokens = 2,
                           .completion_tokens = 2});
  writer.append_end(out, {.prompt_tokens = 3, .cached_tokens = 2, .completion_tokens = 2});
  std::vector<std::string> usages;
  for (size_t at = out.find("\"usage\":"); at != std::string::npos;
       at = out.find("\"usage\":", at + 1)) {
    usages.push_back(out.substr(at + 8, out.find("}}", at) - at - 6));
  }
  const auto usage = [](const std::string& made, const std::string& all, const std::string& kept) {
    return R"({"prompt_tokens":3,"completion_tokens":)" + made + R"(,"total_tokens":)" + all +
           R"(,"prompt_tokens_details":{"cached_tokens":)" + kept + "}}";
  };
  EXPECT_EQ(usages, (std::vector<std::string>{usage("0", "3", "0"), usage("1", "4", "0"),
                                              usage("2", "5", "2"), usage("2", "5", "2")}));
}

TEST(ReplyWhole, TokensOfEqualTextKeepTheirLogprobs) {
  const auto top_of = [](std::vector<TokenLogprob> top) {
    ReplyWriter writer = writer_of({.logprobs = true});
    const std::vector<GeneratedToken> tokens = {
        {.token = 2, .logprob = -0.5F, .top = std::move(top)}};
    std::string out;
    writer.append_whole(
        out, std::vector<ReplyPart>{{.tokens = tokens, .finish = FinishReason::kLength}}, {}, "");
    return nlohmann::json::parse(out)["choices"][0]["logprobs"]["top_logprobs"][0];
  };
  const auto halves = top_of({{2, -0.5F}, {3, -0.75F}, {4, -1.0F}});
  EXPECT_EQ(halves.size(), 3U) << halves;
  EXPECT_EQ(halves["\xEF\xBF\xBD"], -0.5) << "the chosen token has its name in `tokens`";
  EXPECT_EQ(halves["token_id:3"], -0.75);
  EXPECT_EQ(halves["<4>"], -1.0);
}

TEST(TokensReply, ATokenWithoutAlternativesIsItsOwn) {
  ReplyWriter writer =
      writer_of({.kind = ApiKind::kTokens, .logprobs = true, .tokens_as_ids = true});
  const std::vector<GeneratedToken> tokens = {{.token = 1, .logprob = -0.5F}};
  std::string out;
  writer.append_whole(
      out, std::vector<ReplyPart>{{.tokens = tokens, .finish = FinishReason::kLength}}, {}, "");
  const auto entry = nlohmann::json::parse(out)["choices"][0]["logprobs"]["content"][0];
  ASSERT_EQ(entry["top_logprobs"].size(), 1U);
  EXPECT_EQ(entry["top_logprobs"][0]["token"], "token_id:1");
  EXPECT_EQ(entry["top_logprobs"][0]["logprob"], -0.5);
}

TEST(TokensReply, HasIdsLogprobsAndVersions) {
  ReplyWriter writer =
      writer_of({.kind = ApiKind::kTokens, .rids = {"r"}, .logprobs = true, .tokens_as_ids = true});
  const std::vector<WeightSpan> weights = {{"v1", 0, 1}};
  const std::vector<ReplyPart> parts = {{.text = "Hi",
                                         .tokens = kHi,
                                         .finish = FinishReason::kStop,
                                         .weight_version = "v2",
                                         .weights = weights}};
  std::string out;
  writer.append_whole(out, parts, {.prompt_tokens = 2, .completion_tokens = 1}, "");
  EXPECT_EQ(nlohmann::json::parse(out),
            nlohmann::json::parse(
                R"({"request_id":"r","choices":[{"index":0,"logprobs":{"content":[
                {"token":"token_id:1","logprob":-0.5,"bytes":[72,105],"top_logprobs":[
                  {"token":"token_id:1","logprob":-0.5,"bytes":[72,105]},
                  {"token":"token_id:4","logprob":-1.25,"bytes":[60,52,62]}]}]},
              "finish_reason":"stop","token_ids":[1],"weight_version":"v1",
              "weight_versions":[{"version":"v1","start":0,"end":1}]}],
              "usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0}},
              "weight_version":"v2","kv_transfer_params":null})"));
}

TEST(TokensReply, StreamsItsNewTokens) {
  ReplyWriter writer = writer_of({.kind = ApiKind::kTokens});
  std::string out;
  writer.append_part(out, {.text = "Hi", .tokens = kHi});
  writer.append_part(out, {.finish = FinishReason::kLength, .weight_version = "v"});
  writer.append_end(out, {});
  EXPECT_EQ(out,
            "data: "
            "{\"request_id\":\"7\",\"choices\":[{\"index\":0,\"logprobs\":null,\"finish_reason\":"
            "null,\"token_ids\":[1]}]}\n\n"
            "data: "
            "{\"request_id\":\"7\",\"choices\":[{\"index\":0,\"logprobs\":null,\"finish_reason\":"
            "\"length\",\"token_ids\":[],"
            "\"weight_version\":\"v\",\"weight_versions\":[]}]}\n\n"
            "data: [DONE]\n\n");
}

TEST(ReplyWhole, WithTokenIdsItSaysWhichWeightsMadeThem) {
  ReplyWriter writer = writer_of({.return_token_ids = true});
  const std::vector<ReplyPart> parts = {
      {.tokens = kHi, .finish = FinishReason::kStop, .weight_version = "v"}};
  std::string out;
  writer.append_whole(out, parts, {}, "");
  const auto reply = nlohmann::json::parse(out);
  EXPECT_EQ(reply["weight_version"], "v");
  EXPECT_EQ(reply["choices"][0]["weight_version"], "v");
  ReplyWriter plain = writer_of({});
  out.clear();
  plain.append_whole(out, parts, {}, "");
  EXPECT_EQ(out.find("weight_version"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::openai
