#include "batch/row_reply.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

TEST(RowReply, AVersionIsNotRepeatedInFrontOfATarget) {
  EXPECT_EQ(joined_target("/v1", "/v1/completions"), "/v1/completions");
  EXPECT_EQ(joined_target("/v1/", "/v1/completions"), "/v1/completions");
  EXPECT_EQ(joined_target("/openai/v1", "/v1/completions"), "/openai/v1/completions");
  EXPECT_EQ(joined_target("", "/v1/completions"), "/v1/completions");
}

TEST(RowReply, TheStatusSaysWhoseFaultItIs) {
  EXPECT_EQ(outcome_of_status(200), Outcome::kAnswered);
  EXPECT_EQ(outcome_of_status(400), Outcome::kRefused);
  EXPECT_EQ(outcome_of_status(422), Outcome::kRefused);
  EXPECT_EQ(outcome_of_status(429), Outcome::kBusy);
  EXPECT_EQ(outcome_of_status(503), Outcome::kBusy);
  EXPECT_EQ(outcome_of_status(500), Outcome::kBroken);
  EXPECT_EQ(outcome_of_status(502), Outcome::kLost);
  EXPECT_EQ(outcome_of_status(408), Outcome::kBroken);
}

TEST(RowReply, AWaitIsBounded) {
  EXPECT_EQ(retry_after_of("7"), std::chrono::seconds(7));
  EXPECT_EQ(retry_after_of("4000000000"), std::chrono::minutes(10));
  EXPECT_EQ(retry_after_of("Wed, 21 Oct 2026 07:28:00 GMT"), Duration{});
}

TEST(RowReply, ARefusedKeyIsHopeless) {
  RowResult result{.status = 401, .body = "{}"};
  judge_reply(result);
  EXPECT_NE(result.hopeless.find("refuses the key (status 401)"), std::string::npos);
  result = {.status = 404, .body = "{}"};
  judge_reply(result);
  EXPECT_EQ(result.hopeless, "");
}

}  // namespace
}  // namespace pdjob::batch
