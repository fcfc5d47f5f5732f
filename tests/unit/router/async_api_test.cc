// Requests that nobody waits for, over real sockets: client, router and one worker share an event
// loop; the store has its own thread and a real file.
#include "router/async_api.h"

#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/limits.h"
#include "net/json_edit.h"
#include "router/http_api.h"
#include "tests/support/http_peers.h"

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;

constexpr const char* kAsk = R"({"prompt":"Once"})";

struct AsyncApiTest : testing::Test {
  AsyncApiTest() {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    config.async.file = folder / "requests.db";
    config.attempts = 1;
  }
  ~AsyncApiTest() override {
    api.reset();
    std::filesystem::remove_all(folder);
  }
  void serve() {
    api.reset();
    auto opened = HttpApi::open(loop, config, {}, [] {});
    ASSERT_TRUE(opened) << opened.error().message;
    api = std::move(*opened);
    client = net::HttpClient::create(loop);
  }
  void join() {
    api->relay().submit(WorkersChanged{{{.name = "b0",
                                         .engine_id = "e1",
                                         .role = net::Role::kBoth,
                                         .host = "127.0.0.1",
                                         .port = worker.port(),
                                         .model = "m"}}});
  }
  Reply call(std::string_view method, std::string_view target, const std::string& body = "",
             std::string_view header_lines = "") {
    Reply reply;
    client->start({.to = {"127.0.0.1", api->server().port()},
                   .method = method,
                   .target = target,
                   .header_lines = header_lines,
                   .body = body},
                  reply);
    EXPECT_TRUE(turn_until(loop, [&] { return reply.ended; }));
    return reply;
  }
  static std::string field(const std::string& body, std::string_view name) {
    const auto object = net::JsonObject::scan(body, {&name, 1});
    return object ? std::string(object->value(name)) : "";
  }
  // Its id.
  std::string submit(const std::string& body = kAsk, std::string_view header_lines = "") {
    const Reply reply = call("POST", "/v1/async/completions", body, header_lines);
    EXPECT_EQ(reply.status, 202) << reply.body;
    EXPECT_EQ(field(reply.body, "status"), R"("queued")");
    return net::json_string(field(reply.body, "id")).value_or("");
  }
  Reply get(const std::string& id, std::string_view header_lines = "") {
    return call("GET", "/pdjob/requests/" + id, "", header_lines);
  }
  std::string status(const std::string& id) { return field(get(id).body, "status"); }
  bool comes_to(const std::string& id, const std::string& wanted) {
    return turn_until(loop, [&] { return status(id) == wanted; });
  }

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("pdjob-async-api-" + std::to_string(getpid()));
  net::EventLoop loop;
  RouterConfig config;
  Peer worker{loop, [](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest& request,
                       int asked) {
                server.reply(id, 200, "application/json",
                             R"({"path":")" + std::string(request.path) + R"(","asked":)" +
                                 std::to_string(asked) + "}");
              }};
  std::unique_ptr<HttpApi> api;
  std::unique_ptr<net::HttpClient> client;
};

TEST_F(AsyncApiTest, HasTheAnswerLater) {
  serve();
  const std::string id = submit();
  EXPECT_EQ(id.size(), std::string_view("areq-").size() + 32);
  EXPECT_EQ(status(id), R"("queued")") << "there is no worker yet";
  join();
  ASSERT_TRUE(comes_to(id, R"("completed")"));
  EXPECT_EQ(field(get(id).body, "response"),
            R"({"status_code":200,"body":{"path":"/v1/completions","asked":1}})");
  EXPECT_EQ(worker.asked, 1);
}

TEST_F(AsyncApiTest, KeepsAnErrorAsTheAnswer) {
  serve();
  join();
  worker.answer = [](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest&,
                     int asked) {
    if (asked == 1) {
      return server.reply(id, 400, "application/json", R"({"error":{}})");
    }
    server.begin(id, 200, "application/json");
    server.write(id, "{");
    server.abort(id);
  };
  const std::string refused = submit();
  ASSERT_TRUE(comes_to(refused, R"("failed")"));
  EXPECT_EQ(field(get(refused).body, "response"), R"({"status_code":400,"body":{"error":{}}})");
  const std::string broken = submit();
  ASSERT_TRUE(comes_to(broken, R"("failed")"));
  EXPECT_NE(get(broken).body.find(R"("status_code":502)"), std::string::npos);
}

TEST_F(AsyncApiTest, RunsAgainWhatThePreviousRouterHadNotAnswered) {
  serve();
  join();
  const std::string done = submit();
  ASSERT_TRUE(comes_to(done, R"("completed")"));
  const auto well = worker.answer;
  worker.answer = [](net::HttpServer&, net::ExchangeId, const net::HttpRequest&, int) {};
  config.async.in_flight_max = 1;
  serve();
  join();
  const std::string running = submit();
  const std::string queued = submit();
  ASSERT_TRUE(comes_to(running, R"("in_progress")"));
  EXPECT_EQ(status(queued), R"("queued")");
  ASSERT_TRUE(turn_until(loop, [&] { return worker.asked == 2; }));
  worker.answer = well;
  serve();
  join();
  ASSERT_TRUE(comes_to(queued, R"("completed")"));
  ASSERT_TRUE(comes_to(running, R"("completed")"));
  EXPECT_EQ(status(done), R"("completed")");
  EXPECT_EQ(worker.asked, 4);
}

TEST_F(AsyncApiTest, CancelsWhatRunsAndForgetsWhatHasEnded) {
  serve();
  join();
  const std::string done = submit();
  ASSERT_TRUE(comes_to(done, R"("completed")"));
  worker.answer = [](net::HttpServer&, net::ExchangeId, const net::HttpRequest&, int) {};
  const std::string running = submit();
  ASSERT_TRUE(turn_until(loop, [&] { return worker.asked == 2; }));
  for (const std::string& id : {done, running}) {
    EXPECT_EQ(call("DELETE", "/pdjob/requests/" + id).status, 200);
    EXPECT_EQ(get(id).status, 404);
    EXPECT_EQ(call("DELETE", "/pdjob/requests/" + id).status, 404);
  }
  EXPECT_TRUE(turn_until(loop, [&] { return api->relay().core().requests_alive() == 0; }));
}

TEST_F(AsyncApiTest, ForgetsAnAnswerAfterItsTime) {
  config.async.ttl = std::chrono::seconds(1);
  serve();
  join();
  const std::string id = submit();
  EXPECT_TRUE(turn_until(loop, [&] { return get(id).status == 404; }));
  EXPECT_EQ(worker.asked, 1);
}

TEST_F(AsyncApiTest, RefusesWhatItCannotKeep) {
  config.async.queue_max = 1;
  serve();
  EXPECT_EQ(call("POST", "/v1/async/completions", "no JSON").status, 400);
  EXPECT_EQ(call("POST", "/v1/async/completions", R"({"stream":true})").status, 400);
  EXPECT_EQ(call("POST", "/v1/async/completions",
                 R"({"prompt":")" + std::string(limits::kAsyncBodyBytesMax, 'x') + R"("})")
                .status,
            413);
  EXPECT_EQ(call("POST", "/v1/async/embeddings", "{}").status, 404);
  EXPECT_EQ(get("areq-0").status, 404);
  submit();
  EXPECT_EQ(call("POST", "/v1/async/completions", kAsk).status, 503);
}

TEST_F(AsyncApiTest, KeepsTenantsApart) {
  config.tenants = {{.name = "a", .key_sha256 = sha256_of("a"), .requests_per_minute = 1},
                    {.name = "b", .key_sha256 = sha256_of("b")}};
  serve();
  join();
  const std::string_view a = "Authorization: Bearer a\r\n";
  const std::string_view b = "Authorization: Bearer b\r\n";
  const std::string id = submit(kAsk, a);
  EXPECT_TRUE(
      turn_until(loop, [&] { return field(get(id, a).body, "status") == R"("completed")"; }));
  EXPECT_EQ(get(id, b).status, 404);
  EXPECT_EQ(get(id).status, 401);
  EXPECT_EQ(call("DELETE", "/pdjob/requests/" + id, "", b).status, 404);
  EXPECT_EQ(call("POST", "/v1/async/completions", kAsk, a).status, 429);
  EXPECT_EQ(get(id, a).status, 200);
}

}  // namespace
}  // namespace pdjob::router
