#include "router/relay/reply_capture.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

struct ReplyCaptureTest : testing::Test {
  void begin(net::BodyFraming framing, std::vector<net::HttpHeader> headers = {}) {
    headers.push_back({"Content-Type", type});
    capture.begin({.status = 200, .headers = std::move(headers), .framing = framing}, WorkerId{7});
  }

  std::string type = "application/json";
  ReplyCapture capture{30};
};

TEST_F(ReplyCaptureTest, HasTheBodyWithoutItsChunks) {
  begin(net::BodyFraming::kChunked);
  capture.take("3;t=0.1\r\nab");
  capture.take("c\r\n2\r\nde\r\n");
  capture.take("0\r\n\r\n");
  const auto reply = capture.release();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "abcde");
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->content_type, "application/json");
  EXPECT_EQ(reply->writer, WorkerId{7});
  EXPECT_FALSE(capture.release()) << "it is there once";
}

TEST_F(ReplyCaptureTest, HasABodyOfKnownLength) {
  begin(net::BodyFraming::kLength);
  capture.take("0123456789");
  const auto reply = capture.release();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "0123456789");
}

TEST_F(ReplyCaptureTest, IsNoneOfWhatIsTooLong) {
  begin(net::BodyFraming::kLength);
  capture.take(std::string(31, 'x'));
  capture.take("y");
  EXPECT_FALSE(capture.release());
}

TEST_F(ReplyCaptureTest, IsNoneOfWhatWasGivenUp) {
  begin(net::BodyFraming::kLength);
  capture.take("01");
  capture.give_up();
  capture.take("23");
  EXPECT_FALSE(capture.release());
}

TEST_F(ReplyCaptureTest, IsNoneWithoutAReply) { EXPECT_FALSE(capture.release()); }

TEST_F(ReplyCaptureTest, IsNoneOfABodyThatEndsByClosing) {
  begin(net::BodyFraming::kUntilClose);
  capture.take("01");
  EXPECT_FALSE(capture.release());
}

TEST_F(ReplyCaptureTest, IsNoneOfACodedBody) {
  begin(net::BodyFraming::kLength, {{"Content-Encoding", "gzip"}});
  capture.take("01");
  EXPECT_FALSE(capture.release());
}

TEST_F(ReplyCaptureTest, SeesTheLastEventOfAStream) {
  type = "text/event-stream; charset=utf-8";
  begin(net::BodyFraming::kChunked);
  capture.take("9\r\ndata: 1\n\n\r\n");
  EXPECT_FALSE(capture.has_last_event());
  capture.take("e;t=end\r\ndata: [DONE]\n\n\r\n");
  EXPECT_TRUE(capture.has_last_event());
  const auto reply = capture.release();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "data: 1\n\ndata: [DONE]\n\n");
  EXPECT_FALSE(capture.has_last_event());
}

TEST_F(ReplyCaptureTest, SeesALastEventInStreamsOnly) {
  begin(net::BodyFraming::kLength);
  capture.take("data: [DONE]\n\n");
  EXPECT_FALSE(capture.has_last_event());
}

}  // namespace
}  // namespace pdjob::router
