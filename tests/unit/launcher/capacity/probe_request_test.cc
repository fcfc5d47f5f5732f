#include "launcher/capacity/probe_request.h"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "openai/json/json_edit.h"

namespace pdjob::launcher {
namespace {

TEST(ProbePrompts, HaveDistinctBeginnings) {
  ProbePrompts prompts(1);
  std::set<std::string> beginnings;
  for (int i = 0; i < 200; ++i) {
    beginnings.insert(prompts.prompt(64).substr(0, 30));
  }
  EXPECT_EQ(beginnings.size(), 200U);
}

TEST(ProbePrompts, ComeCloserToTheLengthThatWasAskedFor) {
  ProbePrompts prompts(1);
  const std::string first = prompts.prompt(100);
  prompts.learn(first, 300);  // Three tokens a word.
  const std::string second = prompts.prompt(300);
  EXPECT_EQ(std::count(second.begin(), second.end(), ' '), 99);
  prompts.learn(second, 0);
  EXPECT_LT(prompts.prompt(10).size(), 1000U);
}

TEST(ProbeRequest, IsJsonWithAllThatAMeasurementNeeds) {
  const std::string body = body_of({.model = "a \"b\"",
                                    .prompt = "one two",
                                    .output_tokens = 7,
                                    .kv_transfer_params = std::string(kPrefillLegParams)});
  EXPECT_TRUE(openai::is_valid_json(body));
  EXPECT_EQ(
      body,
      R"({"model":"a \"b\"","prompt":"one two","max_tokens":7,"temperature":0,"ignore_eos":true,)"
      R"("stream":true,"stream_options":{"include_usage":true},"kv_transfer_params":)" +
          std::string(kPrefillLegParams) + "}");
}

TEST(ProbeEvents, CountsOutputInPiecesOfAnySize) {
  const std::string stream =
      "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\r\n\r\n"
      ": a comment\n\n"
      "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}],\"usage\":null}\n\n"
      "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3}}\n\n"
      "data: [DONE]\n\n";
  for (const size_t piece : {size_t{1}, size_t{7}, stream.size()}) {
    ProbeEvents events;
    uint32_t tokens = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      tokens += events.add(std::string_view(stream).substr(at, piece)).tokens;
    }
    EXPECT_EQ(tokens, 3U);
    EXPECT_TRUE(events.done());
    ASSERT_TRUE(events.usage());
    EXPECT_EQ(events.usage()->prompt_tokens, 12U);
    EXPECT_EQ(events.usage()->completion_tokens, 3U);
  }
}

TEST(ProbeEvents, ReportsTheServersError) {
  ProbeEvents events;
  EXPECT_EQ(events.add("data: {\"error\":{\"message\":\"no memory\",\"code\":500}}\n").error,
            "no memory");
  EXPECT_EQ(events.add("data: {\"error\":\"odd\"}\n").error, "odd");
}

TEST(ProbeEvents, SurvivesHostileStreams) {
  for (const std::string& line :
       {std::string("data: {"), std::string("data: []"), std::string("data: {\"choices\":3}"),
        std::string("data: {\"choices\":[[[[]]]]}"), std::string("data:"),
        std::string("data: {\"usage\":{\"prompt_tokens\":-4}}"),
        std::string("data: {\"usage\":{\"prompt_tokens\":1e300}}"), std::string(1000, '['),
        std::string("\0\xff data", 7)}) {
    ProbeEvents events;
    EXPECT_EQ(events.add(line + "\n").tokens, 0U) << line;
    EXPECT_FALSE(events.usage()) << line;
  }
  ProbeEvents events;
  EXPECT_FALSE(events.add(std::string(3 << 20, 'x')).error.empty());
}

TEST(TransferParams, AreThoseOfTheReply) {
  const auto params =
      transfer_params_of(R"({"id":"x","kv_transfer_params":{"remote_host":"h","remote_port":1}})");
  ASSERT_TRUE(params);
  EXPECT_EQ(*params, R"({"remote_host":"h","remote_port":1})");
  EXPECT_FALSE(transfer_params_of(R"({"kv_transfer_params":null})"));
  EXPECT_FALSE(transfer_params_of("no JSON"));
}

TEST(Refusals, SayWhatTheServerSays) {
  EXPECT_EQ(refusal_text(400, R"({"error":{"message":"too long"}})"), "400: too long");
  EXPECT_EQ(refusal_text(400, R"({"message":"bad"})"), "400: bad");
  EXPECT_EQ(refusal_text(404, R"({"detail":"Not Found"})"), "404: Not Found");
  EXPECT_EQ(refusal_text(502, "<html>\nmore"), "502: <html>");
  EXPECT_EQ(refusal_text(503, ""), "503");
  EXPECT_EQ(refusal_text(500, "\x1b[31mred").find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace pdjob::launcher
