#include "router/relay/reply_capture.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

struct ReplyCaptureTest : testing::Test {
  void begin(net::BodyFraming framing, std::vector<net::HttpHeader> headers = {}) {
    headers.push_back({"Content-Type", type});
    capture.begin({.status = 200, .headers = std::move(headers), .framing = framing}, WorkerId{7});
  }
  void finish(ReplyCapture::End end = ReplyCapture::End::kWhole) { capture.finish(end); }

  std::string type = "application/json";
  std::optional<CapturedReply> reply;
  int times = 0;
  ReplyCapture capture{30, [this](std::optional<CapturedReply> got) {
                         reply = std::move(got);
                         ++times;
                       }};
};

TEST_F(ReplyCaptureTest, HasTheBodyWithoutItsChunks) {
  begin(net::BodyFraming::kChunked);
  capture.take("3;t=0.1\r\nab");
  capture.take("c\r\n2\r\nde\r\n");
  capture.take("0\r\n\r\n");
  finish();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "abcde");
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->content_type, "application/json");
  EXPECT_EQ(reply->writer, WorkerId{7});
  EXPECT_EQ(times, 1);
}

TEST_F(ReplyCaptureTest, HasABodyOfKnownLength) {
  begin(net::BodyFraming::kLength);
  capture.take("0123456789");
  finish();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "0123456789");
}

TEST_F(ReplyCaptureTest, IsNoneOfWhatIsTooLong) {
  begin(net::BodyFraming::kLength);
  capture.take(std::string(31, 'x'));
  capture.take("y");
  finish();
  EXPECT_FALSE(reply);
  EXPECT_EQ(times, 1);
}

TEST_F(ReplyCaptureTest, IsNoneOfWhatBrokeOff) {
  begin(net::BodyFraming::kLength);
  capture.take("01");
  finish(ReplyCapture::End::kBrokenOff);
  EXPECT_FALSE(reply);
}

TEST_F(ReplyCaptureTest, IsNoneWithoutAReply) {
  finish();
  EXPECT_FALSE(reply);
  EXPECT_EQ(times, 1);
}

TEST_F(ReplyCaptureTest, IsNoneOfABodyThatEndsByClosing) {
  begin(net::BodyFraming::kUntilClose);
  capture.take("01");
  finish();
  EXPECT_FALSE(reply);
}

TEST_F(ReplyCaptureTest, IsNoneOfACodedBody) {
  begin(net::BodyFraming::kLength, {{"Content-Encoding", "gzip"}});
  capture.take("01");
  finish();
  EXPECT_FALSE(reply);
}

TEST_F(ReplyCaptureTest, HasAStreamWithItsLastEvent) {
  type = "text/event-stream; charset=utf-8";
  begin(net::BodyFraming::kChunked);
  capture.take("9\r\ndata: 1\n\n\r\n");
  EXPECT_EQ(times, 0);
  capture.take("e;t=end\r\ndata: [DONE]\n\n\r\n");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "data: 1\n\ndata: [DONE]\n\n");
  finish(ReplyCapture::End::kBrokenOff);
  EXPECT_EQ(times, 1) << "the client had all of it";
}

TEST_F(ReplyCaptureTest, IsNoneOfAStreamWithoutItsLastEvent) {
  type = "text/event-stream";
  begin(net::BodyFraming::kChunked);
  capture.take("9\r\ndata: 1\n\n\r\n");
  finish(ReplyCapture::End::kBrokenOff);
  EXPECT_FALSE(reply);
  EXPECT_EQ(times, 1);
}

}  // namespace
}  // namespace pdjob::router
