#include "net/http/held_bytes.h"

#include <gtest/gtest.h>

#include "net/loop/free_text.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::net {
namespace {

using Verdict = HeldBytes::Verdict;

TEST(HeldBytes, LetsNobodyHaveMoreThanIsLeftFree) {
  HeldBytes held(1000, 1000);
  EXPECT_EQ(held.ask(0, 0, 500), Verdict::kFits);
  EXPECT_EQ(held.ask(0, 0, 501), Verdict::kTotalIsFull);
  held.take(0, 500);
  EXPECT_EQ(held.ask(0, 500, 1), Verdict::kTotalIsFull) << "the large one grows no more";
  EXPECT_EQ(held.ask(0, 0, 250), Verdict::kFits) << "a small one finds room";
  held.take(0, 600);  // These bytes were never asked for.
  EXPECT_TRUE(held.full());
  EXPECT_EQ(held.ask(0, 0, 1), Verdict::kTotalIsFull);
  EXPECT_EQ(held.ask(0, 0, SIZE_MAX), Verdict::kTotalIsFull);
  held.give_back(0, 1100);
  EXPECT_EQ(held.ask(0, 0, 500), Verdict::kFits);
}

TEST(FreeText, GivesLargeBuffersBack) {
  std::string text(1'000'000, 'x');
  free_text(text, 1000);
  EXPECT_TRUE(text.empty());
  EXPECT_LT(text.capacity(), 1000U) << "as assigning an empty text does not";
  text.reserve(500);
  free_text(text, 1000);
  EXPECT_GE(text.capacity(), 500U);
}

TEST(HeldBytes, HoldsEachAccountToItsShareAndNobodysBytesToTheTotal) {
  HeldBytes held(1000, 250);
  EXPECT_EQ(held.ask(7, 0, 251), Verdict::kAccountIsFull);
  held.take(7, 250);
  EXPECT_EQ(held.ask(7, 0, 1), Verdict::kAccountIsFull);
  EXPECT_EQ(held.ask(8, 0, 250), Verdict::kFits);
  EXPECT_EQ(held.ask(0, 0, 300), Verdict::kFits);
  held.give_back(7, 250);
  EXPECT_EQ(held.of(7), 0U);
  EXPECT_EQ(held.total(), 0U);
}

class HttpBudgetTest : public testing::Test {
 protected:
  void open(HttpServerOptions options = {}) {
    auto opened = HttpServer::open(loop, handler, options);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    server = std::move(*opened);
    handler.answer = [this](ExchangeId id, HttpRequest& request) {
      server->reply(id, 200, "text/plain", "whole " + std::to_string(request.body.size()));
    };
  }
  // Acts as a router does without a key: only heads with the right key pass.
  void refuse_strangers() {
    handler.head = [](HttpRequest& request) -> std::optional<EarlyReply> {
      if (request.header("key") == "right") {
        return std::nullopt;
      }
      return EarlyReply{401, R"({"error":"who?"})", {{"X-Early", "yes"}}};
    };
  }
  static std::string post(size_t bytes, std::string_view more = {}) {
    return "POST /p HTTP/1.1\r\nHost: h\r\n" + std::string(more) +
           "Content-Length: " + std::to_string(bytes) + "\r\n\r\n";
  }
  std::unique_ptr<RawClient> connect() { return std::make_unique<RawClient>(loop, server->port()); }

  EventLoop loop;
  LambdaHandler handler;
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpBudgetTest, AHeadIsAnsweredBeforeItsBodyCame) {
  open();
  refuse_strangers();
  const auto client = connect();
  client->send(post(30'000'000));
  ASSERT_TRUE(client->wait_for("401 Unauthorized"));
  ASSERT_TRUE(client->wait_for(R"({"error":"who?"})"));
  EXPECT_NE(client->received().find("X-Early: yes\r\n"), std::string::npos);
  EXPECT_NE(client->received().find("Connection: close\r\n"), std::string::npos);
  client->send(std::string(1'000'000, 'x'));
  EXPECT_EQ(server->held().total(), 0U) << "nothing of the body is kept";
  client->close_sending();
  EXPECT_TRUE(client->wait_for_end());
  EXPECT_TRUE(handler.requests.empty());
}

TEST_F(HttpBudgetTest, AClientThatWaitsForLeaveIsRefusedInsteadOfAskedForItsBody) {
  open();
  refuse_strangers();
  const auto client = connect();
  client->send(post(5, "Expect: 100-continue\r\n"));
  ASSERT_TRUE(client->wait_for("401 Unauthorized"));
  EXPECT_TRUE(client->wait_for("Connection: close"));
  EXPECT_EQ(client->received().find("100 Continue"), std::string::npos);
}

TEST_F(HttpBudgetTest, AShortBodyThatIsRefusedIsSkippedAndTheNextRequestAnswered) {
  open();
  refuse_strangers();
  const auto client = connect();
  client->send(post(5) + "hello" + post(2, "Key: right\r\n") + "ok" + post(3) + "b");
  ASSERT_TRUE(client->wait_for("whole 2HTTP/1.1 401"));
  client->send("ye" + post(4, "Key: right\r\n") + "next");
  ASSERT_TRUE(client->wait_for("whole 4"));
  EXPECT_EQ(client->received().find("close"), std::string::npos);
  EXPECT_EQ(handler.requests.size(), 2U);
}

TEST_F(HttpBudgetTest, AChunkedBodyThatIsRefusedEndsItsConnection) {
  open();
  refuse_strangers();
  const auto client = connect();
  client->send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" +
               std::string(100'000, 'z'));
  ASSERT_TRUE(client->wait_for("401 Unauthorized"));
  client->close_sending();
  EXPECT_TRUE(client->wait_for_end());
  EXPECT_TRUE(handler.requests.empty());
}

TEST_F(HttpBudgetTest, ASkippedBodyThatNeverComesEndsItsConnection) {
  open({.request_timeout = std::chrono::milliseconds(50)});
  refuse_strangers();
  const auto client = connect();
  client->send(post(5) + "he");
  ASSERT_TRUE(client->wait_for("401 Unauthorized"));
  EXPECT_TRUE(client->wait_for_end());
  EXPECT_EQ(client->received().find("408"), std::string::npos) << "one request has one reply";
}

TEST_F(HttpBudgetTest, TheHandlerMayAllowLessThanTheServer) {
  open();
  handler.head = [](HttpRequest& request) {
    request.body_bytes_max = 10;
    return std::optional<EarlyReply>();
  };
  const auto client = connect();
  client->send(post(10) + "0123456789");
  ASSERT_TRUE(client->wait_for("whole 10"));
  client->send(
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n");
  ASSERT_TRUE(client->wait_for("413 Content Too Large"));
}

TEST_F(HttpBudgetTest, BodiesOfAllConnectionsHaveABoundAndSmallOnesStillComeIn) {
  open({.held_bytes_max = 1'000'000});
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(connect());
    slow.back()->send(post(400'000) + std::string(399'999, 's'));
  }
  ASSERT_TRUE(run_until(loop, [&] { return server->held().total() >= 399'999; }));
  size_t refused = 0;
  ASSERT_TRUE(run_until(loop, [&] {
    refused = 0;
    for (const auto& client : slow) {
      refused += client->received().find("503 Service Unavailable") != std::string::npos ? 1 : 0;
    }
    return refused == 7;
  }));
  EXPECT_LE(server->held().total(), 1'000'000U);
  const auto small = connect();
  small->send(post(1000) + std::string(1000, 'a'));
  EXPECT_TRUE(small->wait_for("whole 1000"));
  for (const auto& client : slow) {
    if (client->received().empty()) {
      client->send("s");
      EXPECT_TRUE(client->wait_for("whole 400000"));
    }
  }
  slow.clear();
  EXPECT_TRUE(run_until(loop, [&] { return server->held().total() == 0; }));
}

TEST_F(HttpBudgetTest, ARefusalForMemorySaysWhenToComeAgain) {
  open({.held_bytes_max = 1'000'000});
  const auto client = connect();
  client->send(post(900'000));
  ASSERT_TRUE(client->wait_for("Retry-After: 1\r\n"));
  EXPECT_TRUE(client->wait_for("overloaded_error"));
}

TEST_F(HttpBudgetTest, AChunkedBodyCountsWhatItHolds) {
  open({.held_bytes_max = 1'000'000});
  const auto client = connect();
  const std::string chunk = "10000\r\n" + std::string(65536, 'c') + "\r\n";
  client->send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 4; ++i) {
    client->send(chunk);
  }
  ASSERT_TRUE(run_until(loop, [&] { return server->held().total() >= size_t{4} * 65536; }));
  for (int i = 0; i < 8; ++i) {
    client->send(chunk);
  }
  ASSERT_TRUE(client->wait_for("503 Service Unavailable"));
  EXPECT_TRUE(run_until(loop, [&] { return server->held().total() == 0; }));
}

TEST_F(HttpBudgetTest, ATenantThatIsFullIsRefusedAloneUntilItsRepliesEnd) {
  open({.held_bytes_max = 1'000'000, .account_held_bytes_max = 100'000});
  handler.head = [](HttpRequest& request) {
    request.account = request.header("key") == "a" ? 1 : 2;
    return std::optional<EarlyReply>();
  };
  std::vector<ExchangeId> waiting;
  handler.answer = [&](ExchangeId id, HttpRequest&) { waiting.push_back(id); };
  const auto first = connect();
  first->send(post(80'000, "Key: a\r\n") + std::string(80'000, 'a'));
  ASSERT_TRUE(run_until(loop, [&] { return waiting.size() == 1; }));
  EXPECT_EQ(server->held().of(1), 80'000U) << "as long as the request is alive";
  const auto second = connect();
  second->send(post(30'000, "Key: a\r\n"));
  ASSERT_TRUE(second->wait_for("429 Too Many Requests"));
  const auto other = connect();
  other->send(post(30'000, "Key: b\r\n") + std::string(30'000, 'b'));
  ASSERT_TRUE(run_until(loop, [&] { return waiting.size() == 2; }));
  server->hold_more(waiting[0], 1000);
  EXPECT_EQ(server->held().of(1), 81'000U);
  server->body_freed(waiting[0]);
  EXPECT_EQ(server->held().of(1), 0U);
  server->reply(waiting[0], 200, "text/plain", "done");
  server->reply(waiting[1], 200, "text/plain", "done");
  EXPECT_TRUE(run_until(loop, [&] { return server->held().total() == 0; }));
}

TEST_F(HttpBudgetTest, ConnectionsThatOnlySendHeadsAreBoundedToo) {
  open({.held_bytes_max = 100'000});
  std::vector<std::unique_ptr<RawClient>> clients;
  const std::string part = "GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(20'000, 'x');
  for (int i = 0; i < 20; ++i) {
    clients.push_back(connect());
    clients.back()->send(part);
  }
  EXPECT_TRUE(clients.back()->wait_for("503 Service Unavailable"));
  EXPECT_LE(server->held().total(), 100'000U);
  EXPECT_TRUE(clients.front()->received().empty());
}

}  // namespace
}  // namespace pdjob::net
