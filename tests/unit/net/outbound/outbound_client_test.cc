// Real sockets on loopback. TLS: tests/integration/test_callbacks.py.
#include "net/outbound/outbound_client.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "net/http/http_server.h"

namespace pdjob::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OutboundClientTest : public testing::Test, public HttpHandler {
 protected:
  OutboundClientTest() {
    auto opened = HttpServer::open(loop_, *this, {.host = "127.0.0.1"});
    server_ = std::move(*opened);
  }

  void on_request(ExchangeId id, HttpRequest& request) override {
    paths_.emplace_back(request.path);
    bodies_.push_back(request.body);
    header_ = std::string(request.header("webhook-id"));
    if (request.path == "/silent") {
      return;
    }
    if (request.path == "/breaks" || request.path == "/half") {
      if (request.path == "/half") {
        server_->begin(id, 200, "text/plain");
        server_->write(id, "half");
      }
      server_->abort(id);
      return;
    }
    if (request.path == "/moved") {
      server_->reply(id, 302, "text/plain", "", {{"Location", "/elsewhere"}});
    } else {
      server_->reply(id, request.path == "/fails" ? 500 : 200, "text/plain",
                     request.path == "/long" ? std::string(100000, 'x') : "taken");
    }
  }
  void on_client_gone(ExchangeId /*id*/) override {}

  OutboundCall call(const std::string& path) const {
    return {.to = *parse_url("http://127.0.0.1:" + std::to_string(server_->port()) + path),
            .headers = {"webhook-id: 7"},
            .body = "hello"};
  }
  Result<OutboundReply> post(OutboundCall to_make) {
    std::optional<Result<OutboundReply>> got;
    client_->post(std::move(to_make), [&](Result<OutboundReply> reply) {
      got = std::move(reply);
      loop_.stop();
    });
    EXPECT_FALSE(got) << "inside post()";
    loop_.run();
    return std::move(*got);
  }

  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<OutboundClient> client_ = OutboundClient::create(loop_, "");
  std::vector<std::string> paths_;
  std::vector<std::string> bodies_;
  std::string header_;
};

TEST_F(OutboundClientTest, PostsABodyWithHeadersAndReadsTheReply) {
  const auto reply = post(call("/done?x=1"));
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "taken");
  EXPECT_TRUE(reply->complete);
  EXPECT_EQ(bodies_, std::vector<std::string>{"hello"});
  EXPECT_EQ(header_, "7");
  EXPECT_EQ(reply->header("CONTENT-type"), "text/plain");
  EXPECT_EQ(reply->header("retry-after"), "");
}

TEST_F(OutboundClientTest, AnyStatusIsAReply) { EXPECT_EQ(post(call("/fails"))->status, 500); }

TEST_F(OutboundClientTest, ARedirectIsNotFollowed) {
  EXPECT_EQ(post(call("/moved"))->status, 302);
  EXPECT_EQ(paths_, std::vector<std::string>{"/moved"});
}

TEST_F(OutboundClientTest, ALongReplyIsCutAndSaysSo) {
  OutboundCall limited = call("/long");
  limited.reply_bytes_max = 1000;
  const auto reply = post(std::move(limited));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body.size(), 1000U);
  EXPECT_FALSE(reply->complete);
  EXPECT_EQ(reply->fault.message, "the reply is longer than 1000 bytes");
}

TEST_F(OutboundClientTest, ABrokenConnectionIsTheServersFault) {
  const auto nothing = post(call("/breaks"));
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::kPeerFailed);
  const auto half = post(call("/half"));
  ASSERT_TRUE(half);
  EXPECT_FALSE(half->complete);
  EXPECT_EQ(half->fault.code, ErrorCode::kPeerFailed);
}

TEST_F(OutboundClientTest, ACancelledCallIsSilent) {
  bool called = false;
  const OutboundId id = client_->post(call("/done"), [&](const auto&) { called = true; });
  client_->cancel(id);
  client_->cancel(id);
  EXPECT_EQ(post(call("/fails"))->status, 500);
  EXPECT_FALSE(called);
}

TEST_F(OutboundClientTest, ASilentPeerIsATimeout) {
  OutboundCall hasty = call("/silent");
  hasty.timeout = milliseconds(50);
  const auto reply = post(std::move(hasty));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kTimeout);
}

TEST_F(OutboundClientTest, NobodyThereIsUnavailable) {
  OutboundCall nowhere = call("/");
  server_.reset();
  const auto reply = post(std::move(nowhere));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
}

// The check sees the address that a name leads to, so a name cannot change its mind in between.
TEST_F(OutboundClientTest, AnAddressThatIsNotAllowedIsNotConnectedTo) {
  OutboundCall by_name = call("/done");
  by_name.to.address.host = "localhost";
  std::vector<IpAddress> asked;
  by_name.may_connect = [&](const IpAddress& address) {
    asked.push_back(address);
    return false;
  };
  const auto reply = post(std::move(by_name));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().message, "the address of localhost is not allowed");
  EXPECT_FALSE(asked.empty());
  EXPECT_FALSE(is_public(asked.front()));
  EXPECT_TRUE(paths_.empty());
}

TEST_F(OutboundClientTest, ManyCallsRunAtOnce) {
  int replies = 0;
  for (int i = 0; i < 50; ++i) {
    client_->post(call(i % 10 == 0 ? "/silent" : "/done"), [&](const Result<OutboundReply>& reply) {
      EXPECT_TRUE(reply);
      replies += 1;
      if (replies == 45) {
        loop_.stop();
      }
    });
  }
  loop_.run();
  EXPECT_EQ(replies, 45);
  client_.reset();  // With calls under way.
}

TEST_F(OutboundClientTest, ACallMayStartAnother) {
  std::optional<int> status;
  client_->post(call("/done"), [&](const Result<OutboundReply>&) {
    client_->post(call("/fails"), [&](const Result<OutboundReply>& reply) {
      status = reply ? reply->status : 0;
      loop_.stop();
    });
  });
  loop_.run();
  EXPECT_EQ(status, 500);
}

}  // namespace
}  // namespace pdjob::net
