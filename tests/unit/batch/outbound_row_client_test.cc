// TLS: tests/integration/test_batch.py.
#include "batch/outbound_row_client.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

TEST(OutboundRowClient, AReplyIsJudgedByItsStatus) {
  RowResult result = result_of(net::OutboundReply{
      .status = 503, .headers = {{"Retry-After", "7"}, {"X-Request-Id", "r"}}, .body = "{}"});
  EXPECT_EQ(result.outcome, Outcome::kBusy);
  EXPECT_EQ(result.retry_after, std::chrono::seconds(7));
  EXPECT_EQ(result.request_id, "r");
  EXPECT_EQ(result_of(net::OutboundReply{.status = 200, .body = "{}"}).outcome, Outcome::kAnswered);
}

TEST(OutboundRowClient, ACallWithoutAReplySaysWhetherTheRowWasSent) {
  const auto outcome = [](ErrorCode code) { return result_of(Error{code, "why"}).outcome; };
  EXPECT_EQ(outcome(ErrorCode::kUnavailable), Outcome::kUnreachable);
  EXPECT_EQ(outcome(ErrorCode::kPeerFailed), Outcome::kLost);
  EXPECT_EQ(outcome(ErrorCode::kTimeout), Outcome::kBroken);
}

TEST(OutboundRowClient, HalfAReplyIsNone) {
  const auto half = [](ErrorCode code) {
    return result_of(
        net::OutboundReply{.status = 200, .body = "{}", .complete = false, .fault = {code, "why"}});
  };
  EXPECT_EQ(half(ErrorCode::kPeerFailed).outcome, Outcome::kLost);
  EXPECT_EQ(half(ErrorCode::kPeerFailed).body, "");
  EXPECT_EQ(half(ErrorCode::kUnsupported).cause, "too_long");
  EXPECT_EQ(half(ErrorCode::kUnsupported).hopeless, "");
}

TEST(OutboundRowClient, AnUntrustedCertificateIsHopeless) {
  EXPECT_EQ(result_of(Error{ErrorCode::kUnsupported, "bad certificate"}).hopeless,
            "bad certificate");
}

}  // namespace
}  // namespace pdjob::batch
