// Async requests over real sockets. Client, router and one worker share an event loop. The store
// has its own thread and a real file.
#include "router/async/async_api.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/crypto/sha256.h"
#include "common/limits.h"
#include "net/loop/event_loop.h"
#include "openai/json/json_edit.h"
#include "router/async/webhook_secret.h"
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
    auto opened =
        HttpApi::open(loop, net::outbound_clients(loop), config, {}, [this] { drained = true; });
    ASSERT_TRUE(opened) << opened.error().message;
    api = std::move(*opened);
    client = net::HttpClient::create(loop);
  }
  void join(const std::string& model = "m") {
    api->relay().submit(WorkersChanged{{{.name = "b0",
                                         .engine_id = "e1",
                                         .role = net::Role::kBoth,
                                         .host = "127.0.0.1",
                                         .port = worker.port(),
                                         .model = model}}});
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
    const auto object = openai::JsonObject::scan(body, {&name, 1});
    return object ? std::string(object->value(name)) : "";
  }
  // Submits a request and returns its id.
  std::string submit(const std::string& body = kAsk, std::string_view header_lines = "") {
    const Reply reply = call("POST", "/v1/async/completions", body, header_lines);
    EXPECT_EQ(reply.status, 202) << reply.body;
    EXPECT_EQ(field(reply.body, "status"), R"("queued")");
    return openai::json_string(field(reply.body, "id")).value_or("");
  }
  Reply get(const std::string& id, std::string_view header_lines = "") {
    return call("GET", "/pdjob/requests/" + id, "", header_lines);
  }
  std::string status(const std::string& id) { return field(get(id).body, "status"); }
  bool comes_to(const std::string& id, const std::string& wanted) {
    return turn_until(loop, [&] { return status(id) == wanted; });
  }

  std::string callback(const std::string& id) { return field(get(id).body, "callback"); }
  // Returns the callback in the form that GET shows.
  static std::string callback_json(const std::string& url, const std::string& status,
                                   int attempts) {
    return R"({"url":")" + url + R"(","status":")" + status + R"(","attempts":)" +
           std::to_string(attempts) + '}';
  }
  bool callback_comes_to(const std::string& id, const std::string& url, const std::string& status,
                         int attempts) {
    return turn_until(loop, [&] { return callback(id) == callback_json(url, status, attempts); });
  }
  std::string submit_to(const std::string& url) {
    return submit(kAsk, "x-pdjob-callback: " + url + "\r\n");
  }
  static std::string url_of(const Peer& peer) {
    return "http://127.0.0.1:" + std::to_string(peer.port()) + "/done?of=me";
  }
  void allow(const Peer& peer) {
    config.async.callbacks.allowed.push_back("127.0.0.1:" + std::to_string(peer.port()));
  }
  double metric(const std::string& line) {
    const std::string text = call("GET", "/metrics").body;
    const size_t at = text.find('\n' + line + ' ');
    return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() + 2));
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
  // The default receiver of callbacks. It accepts everything and keeps the last call.
  Peer receiver{loop, [this](net::HttpServer& server, net::ExchangeId id,
                             const net::HttpRequest& request, int /*asked*/) {
                  keep(request);
                  server.reply(id, 204, "text/plain", "");
                }};
  void keep(const net::HttpRequest& request) {
    called_path = std::string(request.path) + '?' + std::string(request.query);
    called_id = request.header("webhook-id");
    called_at = request.header("webhook-timestamp");
    called_signature = request.header("webhook-signature");
    called_body = request.body;
  }
  // The receiver withholds its reply until the returned function is called.
  std::function<void()> hold_calls() {
    receiver.answer = [this](net::HttpServer& server, net::ExchangeId id,
                             const net::HttpRequest& request, int /*asked*/) {
      keep(request);
      take_last = [&server, id] { server.reply(id, 200, "text/plain", "thanks"); };
    };
    return [this] { take_last(); };
  }
  std::function<void()> take_last;
  std::string called_path;
  std::string called_id;
  std::string called_at;
  std::string called_signature;
  std::string called_body;
  bool drained = false;
  std::unique_ptr<HttpApi> api;
  std::unique_ptr<net::HttpClient> client;
};

// A receiver that takes the call and never replies.
void say_nothing(net::HttpServer& /*server*/, net::ExchangeId /*id*/,
                 const net::HttpRequest& /*request*/, int /*asked*/) {}

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

TEST_F(AsyncApiTest, WaitsForTheWorkersOfItsModelAndHoldsUpNoOther) {
  config.models = {"m", "n"};
  config.async.in_flight_max = 1;
  config.queue_timeout = milliseconds(1);
  serve();
  const std::string waits = submit(R"({"model":"n","prompt":"Once"})");
  const std::string goes = submit(R"({"model":"m","prompt":"Once"})");
  join();
  ASSERT_TRUE(comes_to(goes, R"("completed")"));
  EXPECT_EQ(status(waits), R"("queued")");
  join("n");
  ASSERT_TRUE(comes_to(waits, R"("completed")"));
}

TEST_F(AsyncApiTest, RefusesAModelThatIsUnknown) {
  config.models = {"m"};
  serve();
  const Reply reply = call("POST", "/v1/async/completions", R"({"model":"other","prompt":"Once"})");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(field(reply.body, "status"), "");
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
    const Reply reply = call("DELETE", "/pdjob/requests/" + id);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(field(reply.body, "status"), id == done ? R"("deleted")" : R"("cancelled")");
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

TEST_F(AsyncApiTest, CallsAClientBackWithWhatItWouldFetch) {
  constexpr std::string_view kSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  allow(receiver);
  config.async.callbacks.secret_file = folder / "secret";
  std::ofstream(config.async.callbacks.secret_file) << kSecret;
  serve();
  const std::string url = url_of(receiver);
  const std::string id = submit_to(url);
  EXPECT_EQ(callback(id), callback_json(url, "pending", 0));
  const auto take = hold_calls();
  join();
  ASSERT_TRUE(turn_until(loop, [&] { return receiver.asked == 1; }));
  EXPECT_EQ(called_body, get(id).body) << "it has not been taken yet";
  EXPECT_EQ(called_path, "/done?of=me");
  EXPECT_EQ(called_id, id);
  const auto secret = WebhookSecret::parse(kSecret);
  ASSERT_TRUE(secret);
  EXPECT_EQ(called_signature, secret->sign(id, std::stoll(called_at), called_body));
  take();
  EXPECT_TRUE(callback_comes_to(id, url, "delivered", 1));
  EXPECT_EQ(field(get(id).body, "status"), R"("completed")");
  EXPECT_EQ(metric(R"(pdjob_router_callbacks_total{outcome="delivered"})"), 1);
  EXPECT_EQ(receiver.asked, 1);
}

TEST_F(AsyncApiTest, CallsAgainUntilACallIsTaken) {
  allow(receiver);
  const auto take = receiver.answer;
  receiver.answer = [&](net::HttpServer& server, net::ExchangeId id,
                        const net::HttpRequest& request, int asked) {
    if (asked == 1) {
      server.reply(id, 500, "text/plain", "");
    } else if (asked == 2) {  // A redirect must not lead to any other address.
      server.reply(id, 307, "text/plain", "", {{"Location", url_of(worker)}});
    } else {
      take(server, id, request, asked);
    }
  };
  serve();
  join();
  const std::string id = submit_to(url_of(receiver));
  EXPECT_TRUE(callback_comes_to(id, url_of(receiver), "delivered", 3));
  EXPECT_EQ(called_id, id);
  EXPECT_EQ(called_signature, "") << "there is no secret";
  EXPECT_NE(called_body.find(R"("status":"pending","attempts":2})"), std::string::npos)
      << called_body;
  EXPECT_EQ(worker.asked, 1);
}

TEST_F(AsyncApiTest, CallsNobodyWhoIsNotListed) {
  serve();
  const std::string line = "x-pdjob-callback: " + url_of(receiver) + "\r\n";
  const Reply off = call("POST", "/v1/async/completions", kAsk, line);
  EXPECT_EQ(off.status, 400);
  EXPECT_NE(off.body.find("Nobody is called back here"), std::string::npos) << off.body;
  config.async.callbacks.allowed = {"127.0.0.1:1", "localhost"};
  serve();
  const Reply refused = call("POST", "/v1/async/completions", kAsk, line);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(openai::json_string(field(field(refused.body, "error"), "param")), "x-pdjob-callback");
  EXPECT_NE(refused.body.find("127.0.0.1:" + std::to_string(receiver.port()) +
                              " may not be called: router.async.callbacks.allowed does not list"),
            std::string::npos)
      << refused.body;
  EXPECT_EQ(metric(R"(pdjob_router_callbacks_total{outcome="refused"})"), 1);
  EXPECT_EQ(metric("pdjob_router_async_alive"), 0);
}

TEST_F(AsyncApiTest, AReceiverThatHangsCostsNobodyElse) {
  Peer hanging{loop, say_nothing};
  allow(hanging);
  allow(receiver);
  config.async.callbacks.in_flight_max = 1;
  serve();
  join();
  const std::string hung = submit_to(url_of(hanging));
  ASSERT_TRUE(turn_until(loop, [&] { return hanging.asked == 1; }));
  const std::string waits = submit_to(url_of(hanging));
  ASSERT_TRUE(comes_to(waits, R"("completed")"));
  const std::string well = submit_to(url_of(receiver));
  EXPECT_TRUE(callback_comes_to(well, url_of(receiver), "delivered", 1));
  EXPECT_EQ(callback(hung), callback_json(url_of(hanging), "pending", 0));
  EXPECT_EQ(callback(waits), callback_json(url_of(hanging), "pending", 0));
  EXPECT_EQ(hanging.asked, 1);
  EXPECT_EQ(metric("pdjob_router_callbacks_running"), 1);
  EXPECT_EQ(metric("pdjob_router_callbacks_waiting"), 1);
}

TEST_F(AsyncApiTest, GivesUpACallThatNeverEnds) {
  Peer hanging{loop, say_nothing};
  Peer endless{loop, [](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest&, int) {
                 server.begin(id, 500, "text/plain");
                 server.write(id, std::string(256 * limits::kKiB, 'x'));
               }};
  allow(hanging);
  allow(endless);
  config.async.callbacks.attempts = 1;
  config.async.callbacks.timeout = milliseconds(200);
  serve();
  join();
  for (const Peer* peer : {&hanging, &endless}) {
    const std::string id = submit_to(url_of(*peer));
    EXPECT_TRUE(callback_comes_to(id, url_of(*peer), "failed", 1));
    EXPECT_EQ(field(get(id).body, "status"), R"("completed")");
    EXPECT_EQ(peer->asked, 1);
  }
  EXPECT_EQ(metric(R"(pdjob_router_callbacks_total{outcome="failed"})"), 2);
}

TEST_F(AsyncApiTest, CallsWhomThePreviousRouterHadNotCalled) {
  allow(receiver);
  const auto take = receiver.answer;
  receiver.answer = say_nothing;
  config.async.callbacks.in_flight_max = 1;
  serve();
  join();
  const std::string called = submit_to(url_of(receiver));
  const std::string waiting = submit_to(url_of(receiver));
  ASSERT_TRUE(comes_to(waiting, R"("completed")"));
  ASSERT_TRUE(turn_until(loop, [&] { return receiver.asked == 1; }));
  receiver.answer = take;
  serve();
  EXPECT_TRUE(callback_comes_to(called, url_of(receiver), "delivered", 1));
  EXPECT_TRUE(callback_comes_to(waiting, url_of(receiver), "delivered", 1));
  serve();
  EXPECT_EQ(callback(called), callback_json(url_of(receiver), "delivered", 1));
  EXPECT_EQ(receiver.asked, 3);
  EXPECT_EQ(worker.asked, 2) << "their answers were there";
}

TEST_F(AsyncApiTest, DoesNotCallWhomTheJobFileListsNoMore) {
  allow(receiver);
  receiver.answer = say_nothing;
  serve();
  join();
  const std::string id = submit_to(url_of(receiver));
  ASSERT_TRUE(turn_until(loop, [&] { return receiver.asked == 1; }));
  config.async.callbacks.allowed = {"127.0.0.1:1"};
  serve();
  EXPECT_TRUE(callback_comes_to(id, url_of(receiver), "failed", 0));
  EXPECT_EQ(receiver.asked, 1);
}

TEST_F(AsyncApiTest, ForgetsToCallWhoHasDeletedIt) {
  allow(receiver);
  receiver.answer = [](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest&, int) {
    server.reply(id, 503, "text/plain", "");
  };
  serve();
  join();
  const std::string id = submit_to(url_of(receiver));
  ASSERT_TRUE(callback_comes_to(id, url_of(receiver), "pending", 1));
  EXPECT_EQ(call("DELETE", "/pdjob/requests/" + id).status, 200);
  EXPECT_TRUE(turn_until(
      loop, [&] { return metric(R"(pdjob_router_callbacks_total{outcome="forgotten"})") == 1; }));
  EXPECT_EQ(receiver.asked, 1);
}

TEST_F(AsyncApiTest, ADrainWaitsForTheCallsThatHaveBegun) {
  allow(receiver);
  const auto take = hold_calls();
  config.async.callbacks.in_flight_max = 1;
  serve();
  join();
  const std::string called = submit_to(url_of(receiver));
  const std::string waiting = submit_to(url_of(receiver));
  ASSERT_TRUE(comes_to(waiting, R"("completed")"));
  ASSERT_TRUE(turn_until(loop, [&] { return receiver.asked == 1; }));
  api->drain();
  EXPECT_FALSE(turn_until(loop, [&] { return drained; }, milliseconds(200)));
  take();
  EXPECT_TRUE(turn_until(loop, [&] { return drained; }));
  EXPECT_EQ(receiver.asked, 1) << "the other one is the next router's";
  serve();
  EXPECT_EQ(callback(called), callback_json(url_of(receiver), "delivered", 1));
  EXPECT_TRUE(turn_until(loop, [&] { return receiver.asked == 2; }));
}

TEST_F(AsyncApiTest, CallsAllWhoseAnswersAreKeptWhileAnOlderCallHangs) {
  allow(receiver);
  const auto take = hold_calls();
  config.async.callbacks.in_flight_max = 1;
  config.async.results_max = 2;
  serve();
  join();
  submit_to(url_of(receiver));
  ASSERT_TRUE(turn_until(loop, [&] { return receiver.asked == 1; }));
  const std::string second = submit_to(url_of(receiver));
  ASSERT_TRUE(comes_to(second, R"("completed")"));
  const std::string third = submit_to(url_of(receiver));
  ASSERT_TRUE(comes_to(third, R"("completed")"));
  for (const std::string& id : {second, third}) {
    take();
    ASSERT_TRUE(turn_until(loop, [&] { return called_id == id; }, std::chrono::seconds(2))) << id;
  }
}

TEST_F(AsyncApiTest, ADrainLeavesWhatIsAboutToRunToTheNextRouter) {
  std::vector<std::function<void()>> finish;
  worker.answer = [&](net::HttpServer& server, net::ExchangeId id, const net::HttpRequest&, int) {
    finish.emplace_back([&server, id] { server.reply(id, 200, "application/json", "{}"); });
  };
  config.async.in_flight_max = 2;
  serve();
  join();
  std::string last;
  const auto alive = [this] { return api->relay().core().requests_alive(); };
  // Runs turn by turn: at the end the last request is being read, behind the first one's answer. On
  // a busy machine one turn may see both, and it begins again.
  for (int tries = 0; alive() != 1; ++tries) {
    ASSERT_LT(tries, 50);
    for (const auto& answer : finish) {
      answer();
    }
    ASSERT_TRUE(turn_until(loop, [&] { return alive() == 0; }));
    finish.clear();
    worker.asked = 0;
    submit();
    submit();
    last = submit();
    ASSERT_TRUE(turn_until(loop, [&] { return finish.size() == 2; }));
    std::exchange(finish[0], [] {})();
    while (alive() == 2 && worker.asked == 2) {
      loop.call_at(loop.now(), [this] { loop.stop(); });
      loop.run();
    }
  }
  api->drain();
  ASSERT_TRUE(turn_until(loop, [&] { return status(last) != R"("in_progress")"; }));
  EXPECT_EQ(status(last), R"("queued")");
  finish[1]();
  EXPECT_TRUE(turn_until(loop, [&] { return drained; }));
  EXPECT_EQ(worker.asked, 2);
}

TEST_F(AsyncApiTest, DoesNotServeWithASecretThatIsNone) {
  config.async.callbacks.secret_file = folder / "secret";
  EXPECT_FALSE(HttpApi::open(loop, net::outbound_clients(loop), config, {}, [] {}));
  std::ofstream(config.async.callbacks.secret_file) << "hunter2";
  const auto opened = HttpApi::open(loop, net::outbound_clients(loop), config, {}, [] {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message,
            config.async.callbacks.secret_file + ": must be whsec_ and 24 to 64 bytes in base64");
}

}  // namespace
}  // namespace pdjob::router
