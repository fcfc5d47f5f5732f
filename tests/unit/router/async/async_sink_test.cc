#include "router/async/async_sink.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

struct AsyncSinkTest : testing::Test {
  void begin(int status = 200) {
    sink.begin({.status = status, .framing = net::BodyFraming::kLength}, WorkerId{3}, {});
  }

  std::optional<AsyncAnswer> answer;
  int times = 0;
  AsyncSink sink{10, [this](AsyncAnswer got) {
                   answer = std::move(got);
                   ++times;
                 }};
};

TEST_F(AsyncSinkTest, HasTheAnswerAtItsEnd) {
  begin(404);
  EXPECT_TRUE(sink.write("{"));
  EXPECT_TRUE(sink.write("}"));
  EXPECT_FALSE(answer);
  sink.end();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "{}");
  EXPECT_EQ(times, 1);
}

TEST_F(AsyncSinkTest, HasTheRoutersOwnAnswer) {
  sink.reply(503, "application/json", "full", {});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->body, "full");
}

TEST_F(AsyncSinkTest, AnswersABadGatewayForWhatBrokeOff) {
  begin();
  sink.write("{");
  sink.abort();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 502);
}

TEST_F(AsyncSinkTest, TakesButDoesNotKeepWhatIsTooLong) {
  begin();
  EXPECT_TRUE(sink.write(std::string(11, 'x')));
  sink.end();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 502);
}

}  // namespace
}  // namespace pdjob::router
