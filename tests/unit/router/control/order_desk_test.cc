#include "router/control/order_desk.h"

#include <vector>

#include <gtest/gtest.h>

#include "net/loop/event_loop.h"

namespace pdjob::router {
namespace {

struct OrderDeskTest : testing::Test {
  void run_for(Duration duration) {
    loop.call_at(loop.now() + duration, [this] { loop.stop(); });
    loop.run();
  }

  net::EventLoop loop;
  std::vector<net::OrderAsked> sent;
  std::vector<net::OrderAnswered> answers;
  OrderDesk desk{loop, [this](const net::OrderAsked& order) { sent.push_back(order); },
                 std::chrono::milliseconds(2500)};
  OrderDesk::Done note = [this](const net::OrderAnswered& answer) { answers.push_back(answer); };
};

TEST_F(OrderDeskTest, AnAnswerEndsItsOrderOnly) {
  desk.ask({.kind = net::OrderKind::kPause}, note);
  desk.ask({.kind = net::OrderKind::kReport}, note);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_NE(sent[0].id, sent[1].id);
  desk.take({.id = sent[1].id, .status = 200});
  ASSERT_EQ(answers.size(), 1U);
  desk.take({.id = sent[1].id, .status = 200});
  EXPECT_EQ(answers.size(), 1U) << "a repeated answer";
}

TEST_F(OrderDeskTest, AnOrderIsRepeatedUntilItIsOverdue) {
  desk.ask({.kind = net::OrderKind::kPause}, note);
  run_for(std::chrono::milliseconds(1200));
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0], sent[1]) << "the same order for the launcher";
  run_for(std::chrono::milliseconds(2200));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status, 504);
}

TEST_F(OrderDeskTest, TooManyOrdersAreRefused) {
  for (int i = 0; i < 65; ++i) {
    desk.ask({.kind = net::OrderKind::kPause}, note);
  }
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status, 503);
}

TEST_F(OrderDeskTest, ReportsTakeNoPlaceOfAnOrder) {
  for (int i = 0; i < 65; ++i) {
    desk.ask({.kind = net::OrderKind::kReport}, note);
  }
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status, 503);
  desk.ask({.kind = net::OrderKind::kPause}, note);
  EXPECT_EQ(answers.size(), 1U);
}

}  // namespace
}  // namespace pdjob::router
