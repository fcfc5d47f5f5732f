#include "store/store_api.h"

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "net/http/http_client.h"
#include "store/store_metrics.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::store {
namespace {

struct StoreApiTest : testing::Test {
  net::HttpReply ask(const std::string& method, const std::string& path,
                     const std::string& key = "the-key") {
    const std::string lines = key.empty() ? "" : "Authorization: Bearer " + key + "\r\n";
    net::HttpCall call;
    call.to = {"127.0.0.1", api->http().port()};
    call.method = method;
    call.target = path;
    call.header_lines = lines;
    call.head_timeout = call.idle_timeout = std::chrono::seconds(20);
    Result<net::HttpReply> reply = Error{ErrorCode::kTimeout, ""};
    bool ended = false;
    net::fetch(loop, *client, std::move(call), size_t{1} << 20, [&](Result<net::HttpReply> got) {
      reply = std::move(got);
      ended = true;
    });
    EXPECT_TRUE(net::run_until(loop, [&] { return ended; }));
    return reply ? *reply : net::HttpReply{.status = 0, .body = reply.error().message};
  }

  net::EventLoop loop;
  StoreMetrics metrics;
  StoreMetrics::Now now{.counts = {.tokens_wanted = 128, .tokens_given = 64},
                        .memory = {.blocks = 3},
                        .disk = {.blocks = 7}};
  std::unique_ptr<StoreApi> api =
      StoreApi::open(loop, {}, "the-key", [this] { return metrics.text(now); }).value();
  std::unique_ptr<net::HttpClient> client = net::HttpClient::create(loop);
};

TEST_F(StoreApiTest, HealthNeedsNoKey) {
  EXPECT_EQ(ask("GET", "/health", "").status, 200);
  EXPECT_EQ(ask("GET", "/metrics", "").status, 401);
  EXPECT_EQ(ask("GET", "/metrics", "wrong").status, 401);
  EXPECT_EQ(ask("GET", "/other", "").status, 401);
}

TEST_F(StoreApiTest, RefusesPathsAndMethodsThatItLacks) {
  EXPECT_EQ(ask("GET", "/v1/models").status, 404);
  EXPECT_EQ(ask("DELETE", "/metrics").status, 405);
}

TEST_F(StoreApiTest, MetricsAreOfNow) {
  const auto has = [this](const std::string& line) {
    const net::HttpReply reply = ask("GET", "/metrics");
    EXPECT_EQ(reply.status, 200);
    EXPECT_NE(reply.body.find('\n' + line + '\n'), std::string::npos) << line << reply.body;
  };
  has("pdjob_store_blocks{tier=\"memory\"} 3");
  has("pdjob_store_blocks{tier=\"disk\"} 7");
  has("pdjob_store_queries_total 128");
  has("pdjob_store_hits_total 64");
  has("pdjob_store_blocks_skipped_total{reason=\"no_room\"} 0");
  now.counts.tokens_wanted = 192;
  now.memory.blocks = 2;
  has("pdjob_store_queries_total 192");
  has("pdjob_store_blocks{tier=\"memory\"} 2");
}

}  // namespace
}  // namespace pdjob::store
