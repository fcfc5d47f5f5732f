#include "router/audit/audits.h"

#include <gtest/gtest.h>

#include "openai/replies/reply_text.h"

namespace pdjob::router {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::string_view kCompletions = "/v1/completions";
constexpr std::string_view kChat = "/v1/chat/completions";
constexpr Instant kStart{std::chrono::hours(1)};

Audited audited(const std::string& id, const std::string& decode = "decode-0") {
  return {.request_id = id, .prefill = "prefill-0", .decode = decode};
}

TEST(AuditBody, AsksForTheWholeAnswerWithLogprobs) {
  EXPECT_EQ(
      audit_body(
          kCompletions,
          R"({"prompt":"a","temperature":0,"stream":true,"stream_options":{"include_usage":true},"max_tokens":5})"),
      R"({"prompt":"a","temperature":0,"stream":false,"max_tokens":5,"logprobs":2})");
  EXPECT_EQ(
      audit_body(kChat, R"({"messages":[],"temperature":0.0,"top_logprobs":0,"n":1})"),
      R"({"messages":[],"temperature":0.0,"top_logprobs":2,"n":1,"stream":false,"logprobs":true})");
  EXPECT_EQ(with_salt(R"({"a":1,"cache_salt":"x"})", 7), R"({"a":1,"cache_salt":"pdjob-audit-7"})");
}

TEST(AuditBody, IsNoneForAnAnswerThatCannotBeCompared) {
  for (const char* const members :
       {R"("temperature":0.1)", R"("prompt":"a")", R"("temperature":0,"n":2)",
        R"("temperature":0,"echo":true)", R"("temperature":0,"tools":[{"type":"function"}])",
        R"("temperature":0,"prompt":["a","b"])", R"("temperature":0,"prompt":[[1],[2]])",
        R"("temperature":0,"use_beam_search":true)", R"("temperature":0,"pdjob_resume":[[1]])"}) {
    EXPECT_EQ(audit_body(kCompletions, "{" + std::string(members) + "}"), std::nullopt) << members;
  }
  EXPECT_TRUE(audit_body(kCompletions, R"({"temperature":0,"prompt":[1,2],"tools":[]})"));
  EXPECT_EQ(audit_body("/generate", R"({"temperature":0})"), std::nullopt);
}

TEST(ReplyText, IsReadFromWholeRepliesAndFromStreams) {
  const auto completion = openai::text_of_reply(
      "application/json",
      R"({"choices":[{"index":0,"text":" a b","logprobs":{"tokens":[" a"," b"],"top_logprobs":[{" a":-0.1," c":-2.1},{" b":-1,"x":-1.25,"y":-9}]}}]})");
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->text, " a b");
  ASSERT_EQ(completion->tokens.size(), 2U);
  EXPECT_NEAR(completion->tokens[0].margin, 2, 1e-9);
  EXPECT_NEAR(completion->tokens[1].margin, 0.25, 1e-9);
  const auto chat = openai::text_of_reply(
      "application/json",
      R"({"choices":[{"index":0,"message":{"content":"a","tool_calls":[],"reasoning":null},"logprobs":{"content":[{"token":"a","top_logprobs":[{"token":"a","logprob":-0.5},{"token":"b","logprob":-1}]}]}}]})");
  ASSERT_TRUE(chat);
  EXPECT_NEAR(chat->tokens.at(0).margin, 0.5, 1e-9);
  const std::string events =
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\u00e9\"}}]}\n\n"
      "data: {\"choices\":[],\"usage\":{}}\n\n";
  EXPECT_EQ(openai::text_of_reply("text/event-stream", events), std::nullopt)
      << "its end is missing";
  EXPECT_EQ(
      openai::text_of_reply("text/event-stream; charset=utf-8", events + "data: [DONE]\n\n")->text,
      "aé");
}

TEST(ReplyText, IsNoneIfThereIsMoreThanText) {
  for (const char* const choice :
       {R"({"index":1,"text":"a"})", R"({"index":0,"message":{"reasoning":"hm"}})",
        R"({"index":0,"message":{"tool_calls":[{}]}})"}) {
    EXPECT_FALSE(
        openai::text_of_reply("application/json", "{\"choices\":[" + std::string(choice) + "]}"))
        << choice;
  }
  EXPECT_FALSE(openai::text_of_reply("application/json", "no JSON"));
  EXPECT_FALSE(openai::text_of_reply("application/json", R"({"error":{}})"));
}

TEST(Compare, AccusesOnlyWhereTheEngineWasSure) {
  const openai::ReplyText second{.text = " a b c", .tokens = {{" a", 3}, {" b", 0.2}, {" c", 4}}};
  const auto found = [&](std::string text) {
    return compare({.text = std::move(text)}, second, 0.5);
  };
  EXPECT_EQ(found(" a b c").result, AuditResult::kEqual);
  EXPECT_EQ(found(" a x y").result, AuditResult::kTie);
  EXPECT_EQ(found(" z").result, AuditResult::kDiffers);
  EXPECT_EQ(found(" a b d").position, 2U);
  EXPECT_EQ(found(" a b d").margin, 4);
  EXPECT_EQ(found(" a b").result, AuditResult::kDiffers)
      << "it ended where the engine was sure to go on";
  EXPECT_EQ(found(" a b c d").result, AuditResult::kDiffers) << "it went on where the engine ended";
  EXPECT_EQ(compare({.text = "a"}, {.text = "b"}, 0.5).result, AuditResult::kFailed)
      << "without logprobs nobody knows";
}

TEST(Audits, RunOneAtATimeAndOnlyWhenItIsQuiet) {
  Audits audits({.share = 1});
  audits.add(audited("a"), kStart);
  audits.add(audited("b"), kStart);
  EXPECT_FALSE(audits.next(/*is_quiet=*/false));
  const auto first = audits.next(true);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->request_id, "a");
  EXPECT_FALSE(audits.next(true)) << "one runs";
  audits.ended(*first, {.result = AuditResult::kEqual}, kStart);
  EXPECT_EQ(audits.next(true)->request_id, "b");
}

TEST(Audits, AreDroppedRatherThanCollected) {
  Audits audits({.share = 1});
  size_t dropped = 0;
  for (size_t i = 0; i < Audits::kWaitingMax + 3; ++i) {
    dropped += audits.add(audited("a"), kStart);
  }
  EXPECT_EQ(dropped, 3U);
  EXPECT_EQ(audits.expire(kStart + Audits::kWaitMax - seconds(1)), 0U);
  EXPECT_EQ(audits.expire(kStart + Audits::kWaitMax), Audits::kWaitingMax);
}

TEST(Audits, AccuseAPairThatDiffersAgainWithinAWhile) {
  Audits audits({.share = 1, .mismatches = 2});
  const Finding differs{.result = AuditResult::kDiffers, .position = 1, .margin = 4};
  EXPECT_FALSE(audits.ended(audited("a"), differs, kStart));
  EXPECT_FALSE(audits.ended(audited("a", "decode-1"), differs, kStart)) << "another pair";
  EXPECT_FALSE(audits.ended(audited("a"), {.result = AuditResult::kTie}, kStart));
  EXPECT_FALSE(audits.ended(audited("a"), differs, kStart + minutes(11))) << "long ago";
  EXPECT_TRUE(audits.ended(audited("a"), differs, kStart + minutes(12)));
}

TEST(Audits, ChooseTheirShare) {
  EXPECT_FALSE(Audits({.share = 0}).chooses(0));
  EXPECT_TRUE(Audits({.share = 1}).chooses(UINT64_MAX - 4096));
  EXPECT_TRUE(Audits({.share = 0.5}).chooses(UINT64_MAX / 4));
  EXPECT_FALSE(Audits({.share = 0.5}).chooses(UINT64_MAX / 4 * 3));
}

}  // namespace
}  // namespace pdjob::router
