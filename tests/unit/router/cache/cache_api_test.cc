// The response cache in front of the relay, over real sockets. Client, router, one worker and one
// embedder share an event loop.
#include "router/cache/cache_api.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/crypto/sha256.h"
#include "net/loop/event_loop.h"
#include "router/http_api.h"
#include "tests/support/http_peers.h"

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string answer_number(int number) {
  return R"({"choices":[{"text":")" + std::to_string(number) + R"(","finish_reason":"stop"}]})";
}

struct CacheApiTest : testing::Test {
  CacheApiTest() {
    config.cache.bytes_max = 1 << 20;
    config.cache.similarity.timeout = seconds(10);
    config.attempts = 1;
  }
  void serve() {
    auto opened =
        HttpApi::open(loop, net::outbound_clients(loop), config, {}, [this] { drained = true; });
    ASSERT_TRUE(opened) << opened.error().message;
    api = std::move(*opened);
    client = net::HttpClient::create(loop);
    join("e1");
  }
  void join(const std::string& engine_id) {
    api->relay().submit(WorkersChanged{{{.name = "b0",
                                         .engine_id = engine_id,
                                         .role = net::Role::kBoth,
                                         .host = "127.0.0.1",
                                         .port = worker.port(),
                                         .model = "m"}}});
  }
  void embed_with(Peer& embedder) {
    config.cache.similarity.url = "http://127.0.0.1:" + std::to_string(embedder.port());
  }
  std::unique_ptr<Reply> start(const std::string& body, std::string_view header_lines = "") {
    auto reply = std::make_unique<Reply>();
    client->start({.to = {"127.0.0.1", api->server().port()},
                   .method = "POST",
                   .target = "/v1/completions",
                   .header_lines = header_lines,
                   .body = body},
                  *reply);
    return reply;
  }
  Reply ask(const std::string& body, std::string_view header_lines = "") {
    const auto reply = start(body, header_lines);
    EXPECT_TRUE(turn_until(loop, [&] { return reply->ended; }));
    EXPECT_TRUE(turn_until(loop, [&] { return api->relay().core().requests_alive() == 0; }));
    return *reply;
  }
  // Returns the cache's verdict from the reply's header.
  std::string result_of(const std::string& body, std::string_view header_lines = "") {
    return ask(body, header_lines).cache;
  }
  std::string metrics() { return api->relay().metrics().text(api->relay().core(), loop.now()); }
  bool counted(const std::string& series, int times) {
    return metrics().find(series + ' ' + std::to_string(times) + '\n') != std::string::npos;
  }

  net::EventLoop loop;
  RouterConfig config;
  Peer worker{loop, [](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest& request,
                       int asked) {
                if (request.body.find(R"("stream":true)") == std::string::npos) {
                  server.reply(id, 200, "application/json", answer_number(asked));
                  return;
                }
                server.begin(id, 200, "text/event-stream");
                server.write(id, "data: " + answer_number(asked) + "\n\n");
                server.write(id, "data: [DONE]\n\n");
                server.end(id);
              }};
  std::unique_ptr<HttpApi> api;
  std::unique_ptr<net::HttpClient> client;
  bool drained = false;
};

constexpr const char* kGreedy = R"({"prompt":"Once","temperature":0})";
constexpr const char* kSampled = R"({"prompt":"Once"})";
constexpr const char* kStreamed = R"({"prompt":"Once","temperature":0,"stream":true})";

TEST_F(CacheApiTest, AnswersAnEqualRequestAgain) {
  serve();
  const Reply first = ask(kGreedy);
  EXPECT_EQ(first.cache, "miss");
  EXPECT_EQ(first.age, "");
  const Reply second = ask(R"({ "temperature":0, "prompt":"Once" })", "x-request-id: mine\r\n");
  EXPECT_EQ(second.cache, "hit");
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(second.body, first.body);
  EXPECT_EQ(second.type, first.type);
  EXPECT_EQ(second.age, "0");
  EXPECT_EQ(second.request_id, "mine");
  EXPECT_FALSE(ask(kGreedy).request_id.empty());
  EXPECT_EQ(worker.asked, 1);
  EXPECT_TRUE(counted(R"(pdjob_router_cache_total{result="hit"})", 2));
  EXPECT_TRUE(counted(R"(pdjob_router_cache_total{result="miss"})", 1));
  EXPECT_TRUE(counted(R"(pdjob_router_requests_total{outcome="ok"})", 3));
}

TEST_F(CacheApiTest, AnswersAStreamByAStream) {
  serve();
  const Reply whole = ask(kGreedy);
  const Reply first = ask(kStreamed);
  const Reply second = ask(kStreamed);
  EXPECT_EQ(first.cache, "miss");
  EXPECT_EQ(second.cache, "hit");
  EXPECT_EQ(second.body, first.body);
  EXPECT_EQ(second.type, "text/event-stream");
  EXPECT_NE(second.body, whole.body);
}

TEST_F(CacheApiTest, HasAStreamBeforeItsClientMayAskAgain) {
  serve();
  worker.answer = [](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest&,
                     int asked) {
    server.begin(id, 200, "text/event-stream");
    server.write(id, "data: " + answer_number(asked) + "\n\n");
    server.write(id, "data: [DONE]\n\n");
  };
  auto first = start(kStreamed);
  ASSERT_TRUE(turn_until(loop, [&] { return first->body.ends_with("[DONE]\n\n"); }));
  const auto second = start(kStreamed);
  ASSERT_TRUE(turn_until(loop, [&] { return second->ended; }));
  EXPECT_EQ(second->cache, "hit");
  EXPECT_EQ(second->body, first->body);
}

TEST_F(CacheApiTest, KeepsOffWhatMayHaveAnotherAnswer) {
  serve();
  EXPECT_EQ(result_of(kSampled), "");
  EXPECT_EQ(result_of(kSampled), "");
  EXPECT_EQ(result_of(kGreedy, "x-pdjob-pin-decode: b0\r\n"), "");
  EXPECT_EQ(worker.asked, 3);
  EXPECT_TRUE(counted(R"(pdjob_router_cache_total{result="bypass"})", 3));
}

TEST_F(CacheApiTest, DoesAsTheClientSays) {
  serve();
  EXPECT_EQ(result_of(kSampled, "x-pdjob-cache: always\r\n"), "miss");
  EXPECT_EQ(result_of(kSampled, "x-pdjob-cache: always\r\n"), "hit");
  EXPECT_EQ(result_of(kGreedy, "x-pdjob-cache: no\r\n"), "");
  EXPECT_EQ(result_of(kGreedy, "Cache-Control: no-store\r\n"), "");
  EXPECT_EQ(result_of(kGreedy, "Cache-Control: private, No-Store\r\n"), "");
  EXPECT_EQ(result_of(kGreedy, "Cache-Control: private\r\ncache-control: no-store\r\n"), "");
  EXPECT_EQ(result_of(kGreedy), "miss") << "none of them was kept";
  const std::string old = ask(kGreedy).body;
  EXPECT_EQ(result_of(kGreedy, "Cache-Control: no-cache\r\n"), "miss");
  const Reply renewed = ask(kGreedy);
  EXPECT_EQ(renewed.cache, "hit");
  EXPECT_NE(renewed.body, old);
}

TEST_F(CacheApiTest, KeepsNothingThatIsNotAWholeAnswer) {
  serve();
  worker.answer = [](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest&,
                     int asked) {
    switch (asked) {
      case 1:
        return server.reply(id, 400, "application/json", R"({"error":{}})");
      case 2:
        server.begin(id, 200, "application/json");
        server.write(id, answer_number(asked));
        return server.abort(id);
      case 3:
        return server.reply(id, 200, "application/json", R"({"error":{}})");
      default:
        return server.reply(id, 200, "application/json", answer_number(asked));
    }
  };
  EXPECT_EQ(ask(kGreedy).status, 400);
  EXPECT_TRUE(ask(kGreedy).failed);
  EXPECT_EQ(result_of(kGreedy), "miss");
  EXPECT_EQ(result_of(kGreedy), "miss");
  EXPECT_EQ(result_of(kGreedy), "hit");
}

TEST_F(CacheApiTest, KeepsNothingLongerThanItsBound) {
  config.cache.reply_bytes_max = 10;
  serve();
  EXPECT_EQ(result_of(kGreedy), "miss");
  EXPECT_EQ(result_of(kGreedy), "miss");
}

TEST_F(CacheApiTest, ForgetsWhatAWorkerWroteThatWasStartedAgain) {
  serve();
  EXPECT_EQ(result_of(kGreedy), "miss");
  join("e2");
  EXPECT_EQ(result_of(kGreedy), "miss");
  EXPECT_EQ(result_of(kGreedy), "hit");
}

TEST_F(CacheApiTest, GoesByTheKeyThatWorkersSeeWhereThereAreNoTenants) {
  serve();
  EXPECT_EQ(result_of(kGreedy, "Authorization: Bearer a\r\n"), "miss");
  EXPECT_EQ(result_of(kGreedy, "Authorization: Bearer b\r\n"), "miss");
  EXPECT_EQ(result_of(kGreedy, "Authorization: Bearer a\r\n"), "hit");
}

TEST_F(CacheApiTest, LetsAHitInByKeyAndRateOfRequestsOnly) {
  config.tenants = {{.name = "a",
                     .key_sha256 = sha256_of("a"),
                     .requests_per_minute = 3,
                     .tokens_per_minute = 300},
                    {.name = "b", .key_sha256 = sha256_of("b")}};
  serve();
  const std::string_view key = "Authorization: Bearer a\r\n";
  EXPECT_EQ(ask(kGreedy).status, 401);
  EXPECT_EQ(result_of(kGreedy, key), "miss");
  EXPECT_EQ(ask(R"({"prompt":"Twice","temperature":0})", key).status, 429) << "no tokens are left";
  EXPECT_EQ(result_of(kGreedy, key), "hit");
  EXPECT_EQ(result_of(kGreedy, "Authorization: Bearer b\r\n"), "miss");
  EXPECT_EQ(result_of(kGreedy, key), "hit");
  EXPECT_EQ(ask(kGreedy, key).status, 429) << "no requests are left";
}

TEST_F(CacheApiTest, LeavesTokenizingAlone) {
  serve();
  const auto reply = std::make_unique<Reply>();
  client->start({.to = {"127.0.0.1", api->server().port()},
                 .method = "POST",
                 .target = "/tokenize",
                 .body = kGreedy},
                *reply);
  ASSERT_TRUE(turn_until(loop, [&] { return reply->ended; }));
  EXPECT_EQ(reply->cache, "");
}

struct SimilarityTest : CacheApiTest {
  SimilarityTest() { embed_with(embedder); }
  static std::string prompt(const std::string& text) {
    return R"({"prompt":")" + text + R"(","temperature":0})";
  }
  static std::string prompt_in_chat(const std::string& text) {
    return R"({"messages":[{"role":"user","content":")" + text + R"("}],"temperature":0})";
  }

  // Embeds "east" and "west", and texts close to them.
  Peer embedder{
      loop, [](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest& request, int) {
        const bool east = request.body.find("east") != std::string::npos;
        const bool near = request.body.find("about") != std::string::npos;
        server.reply(id, 200, "application/json",
                     R"({"data":[{"embedding":[)" + std::string(east ? "1," : "-1,") +
                         (near ? "0.1" : "0") + "]}]}");
      }};
};

TEST_F(SimilarityTest, AnswersAPromptThatIsLikeAnother) {
  serve();
  const Reply first = ask(prompt("east"));
  EXPECT_EQ(first.cache, "miss");
  EXPECT_EQ(result_of(prompt("west")), "miss");
  const Reply similar = ask(prompt("about east"));
  EXPECT_EQ(similar.cache, "similar");
  EXPECT_EQ(similar.body, first.body);
  EXPECT_EQ(result_of(prompt("east")), "hit");
  EXPECT_EQ(embedder.asked, 3) << "an equal request asks nobody";
  EXPECT_EQ(result_of(prompt("about west"), "Cache-Control: no-cache\r\n"), "miss");
  EXPECT_EQ(result_of(R"({"prompt":"about east","temperature":0,"max_tokens":2})"), "miss");
  EXPECT_TRUE(counted(R"(pdjob_router_cache_total{result="similar"})", 1));
}

TEST_F(SimilarityTest, GoesOnWithoutAVectorWhenTheEmbedderFails) {
  serve();
  for (const int status : {500, 200}) {
    embedder.answer = [status](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest&,
                               int) { server.reply(id, status, "application/json", "{}"); };
    EXPECT_EQ(result_of(prompt("east " + std::to_string(status))), "miss");
  }
  EXPECT_EQ(result_of(prompt("east 500")), "hit");
  EXPECT_TRUE(counted("pdjob_router_cache_embedding_failures_total", 2));
}

TEST_F(SimilarityTest, GoesOnWithoutAVectorThatIsLate) {
  config.cache.similarity.timeout = milliseconds(500);
  serve();
  net::ExchangeId late;
  net::HttpServer* server = nullptr;
  embedder.answer = [&](net::HttpServer& by, net::ExchangeId id, const net::HttpRequest&, int) {
    late = id;
    server = &by;
  };
  EXPECT_EQ(result_of(prompt("east")), "miss");
  ASSERT_NE(server, nullptr);
  server->reply(late, 200, "application/json", R"({"data":[{"embedding":[1,0]}]})");
  EXPECT_EQ(result_of(prompt("east")), "hit");
  EXPECT_TRUE(counted("pdjob_router_cache_embedding_failures_total", 1));
}

TEST_F(SimilarityTest, ForgetsAClientThatLeavesMeanwhile) {
  serve();
  embedder.answer = [](net::HttpServer&, net::ExchangeId, const net::HttpRequest&, int) {};
  auto reply = std::make_unique<Reply>();
  const net::CallId call = client->start({.to = {"127.0.0.1", api->server().port()},
                                          .target = "/v1/completions",
                                          .body = prompt("east")},
                                         *reply);
  ASSERT_TRUE(turn_until(loop, [&] { return embedder.asked == 1; }));
  client->cancel(call);
  ASSERT_TRUE(turn_until(loop, [&] { return api->server().replies_alive() == 0; }));
  EXPECT_EQ(worker.asked, 0);
}

TEST_F(SimilarityTest, LosesNobodyWhenTheRouterDrains) {
  serve();
  embedder.answer = [](net::HttpServer&, net::ExchangeId, const net::HttpRequest&, int) {};
  const auto reply = start(prompt("east"));
  ASSERT_TRUE(turn_until(loop, [&] { return embedder.asked == 1; }));
  api->drain();
  ASSERT_TRUE(turn_until(loop, [&] { return reply->ended && drained; }));
  EXPECT_EQ(reply->status, 200);
}

}  // namespace
}  // namespace pdjob::router
