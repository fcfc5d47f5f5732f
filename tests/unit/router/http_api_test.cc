// The router's shell over real sockets. Clients, router and tiny fake workers share one event loop.
#include "router/http_api.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/crypto/job_keys.h"
#include "common/crypto/sha256.h"
#include "common/limits.h"
#include "common/os/real_clock.h"
#include "net/loop/event_loop.h"
#include "router/members/static_workers.h"

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kPrompt = R"({"model":"m","prompt":"Once","max_tokens":3,"temperature":0})";
constexpr const char* kStreamed = R"({"model":"m","prompt":"Once","max_tokens":3,"stream":true})";

// Runs the loop until `done` or the deadline. Returns whether `done` came true.
bool turn_until(net::EventLoop& loop, const std::function<bool()>& done,
                Duration within = seconds(20)) {
  const Instant deadline = real_now() + within;
  while (!done() && real_now() < deadline) {
    loop.call_at(loop.now() + milliseconds(1), [&loop] { loop.stop(); });
    loop.run();
  }
  return done();
}

// A minimal engine worker. It keeps the requests that it gets. Its answer to a generation can be
// replaced.
class FakeWorker final : public net::HttpHandler {
 public:
  struct Heard {
    std::string path;
    std::string body;
    std::string authorization;
    std::string request_id;
    std::string traceparent;
    std::string leg;
    std::string kv_store;
    std::string kv_elsewhere;
    std::string progress;
  };
  using Answer = std::function<void(net::HttpServer&, net::ExchangeId, const Heard&)>;

  FakeWorker(net::EventLoop& loop, std::string name, net::Role role, bool foreign = false)
      : loop_(loop), name_(std::move(name)), role_(role), foreign_(foreign) {
    answer = answer_well;
    live(0);
  }

  void live(uint16_t port) {
    auto opened = net::HttpServer::open(loop_, *this, {.port = port});
    ASSERT_TRUE(opened) << opened.error().message;
    server_ = std::move(*opened);
    port_ = server_->port();
  }
  void die() { server_.reset(); }
  void revive() { live(port_); }

  net::WorkerEntry entry() const {
    return {.name = name_,
            .engine_id = "e1",
            .role = role_,
            .host = "127.0.0.1",
            .port = port_,
            .model = model,
            .kv_address = foreign_ ? "" : kv_address,
            .routes = routes,
            .adapters = adapters};
  }
  net::HttpAddress address() const { return {"127.0.0.1", port_}; }
  const std::string& name() const { return name_; }

  static void answer_well(net::HttpServer& server, net::ExchangeId id, const Heard& heard) {
    if (heard.body.find(R"("do_remote_decode":true)") != std::string::npos) {
      server.reply(
          id, 200, "application/json",
          R"({"id":"p","kv_transfer_params":{"remote_block_ids":[[1]],"remote_port":9},"usage":{}})");
    } else if (heard.body.find(R"("stream":true)") != std::string::npos) {
      server.begin(id, 200, "text/event-stream");
      server.write(id, "data: {\"t\":1}\n\n");
      server.write(id, "data: {\"t\":2}\n\n");
      server.write(id, "data: [DONE]\n\n");
      server.end(id);
    } else {
      server.reply(id, 200, "application/json", R"({"choices":[{"text":" upon"}]})");
    }
  }

  void on_request(net::ExchangeId id, net::HttpRequest& request) override {
    if (request.path == "/pdjob/worker" && !foreign_) {
      server_->reply(id, 200, "application/json",
                     R"({"name":")" + name_ +
                         R"(","engine_id":"e1","model":"m","kv_address":{"remote_port":77}})");
    } else if (request.path == "/v1/models") {
      server_->reply(id, 200, "application/json", R"({"data":[{"id":"m"}]})");
    } else if (request.path == "/health") {
      server_->reply(id, 200, "text/plain", "");
    } else if (request.path == "/pdjob/worker") {
      server_->reply(id, unknown_path_status, "application/json", unknown_path_body);
    } else {
      heard.push_back({.path = std::string(request.path),
                       .body = request.body,
                       .authorization = std::string(request.header("authorization")),
                       .request_id = std::string(request.header("x-request-id")),
                       .traceparent = std::string(request.header("traceparent")),
                       .leg = std::string(request.header("x-pdjob-leg")),
                       .kv_store = std::string(request.header("x-pdjob-kv-store")),
                       .kv_elsewhere = std::string(request.header("x-pdjob-kv-elsewhere")),
                       .progress = std::string(request.header("x-pdjob-progress"))});
      answer(*server_, id, heard.back());
    }
  }
  void on_client_gone(net::ExchangeId /*id*/) override { clients_gone += 1; }

  std::string model = "m";  // Empty accepts any model.
  std::string kv_address = R"({"remote_engine_id":"e1","remote_port":77})";
  std::vector<std::string> routes;
  std::vector<std::string> adapters;
  std::vector<Heard> heard;
  int clients_gone = 0;
  Answer answer;
  // The answer of a foreign engine at the path where a pdjob worker describes itself.
  int unknown_path_status = 404;
  std::string unknown_path_body = "{}";

 private:
  net::EventLoop& loop_;
  const std::string name_;
  const net::Role role_;
  const bool foreign_;
  std::unique_ptr<net::HttpServer> server_;
  uint16_t port_ = 0;
};

// A client that shows bytes as they arrive.
class RawClient {
 public:
  RawClient(uint16_t port, const std::string& request)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(send(fd_, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    fcntl(fd_, F_SETFL, O_NONBLOCK);
  }
  ~RawClient() { leave(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void leave() {
    if (fd_ >= 0) {
      close(fd_);
      fd_ = -1;
    }
  }
  // Reads what has arrived. Returns true if the peer has closed.
  bool poll() {
    char buffer[65536];
    while (!closed) {
      const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
      if (got < 0) {
        closed = errno != EAGAIN;
        reset = closed;
        break;
      }
      closed = got == 0;
      received.append(buffer, static_cast<size_t>(got));
    }
    return closed;
  }
  bool has(std::string_view text) {
    poll();
    return received.find(text) != std::string::npos;
  }
  std::string head() const { return received.substr(0, received.find("\r\n\r\n") + 4); }
  std::string body() const { return received.substr(received.find("\r\n\r\n") + 4); }

  std::string received;
  bool closed = false;
  bool reset = false;

 private:
  int fd_;
};

std::string post(const std::string& path, const std::string& body, const std::string& headers = "",
                 const std::string& version = "HTTP/1.1") {
  return "POST " + path + ' ' + version + "\r\nHost: r\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct HttpApiTest : testing::Test {
  void serve() {
    auto opened =
        HttpApi::open(loop, net::outbound_clients(loop), config, {}, [this] { drained = true; });
    ASSERT_TRUE(opened) << opened.error().message;
    api = std::move(*opened);
    client = net::HttpClient::create(loop);
    submit_members();
  }
  FakeWorker& add(const std::string& name, net::Role role, bool foreign = false) {
    workers.push_back(std::make_unique<FakeWorker>(loop, name, role, foreign));
    return *workers.back();
  }
  void submit_members() {
    std::vector<net::WorkerEntry> entries;
    for (const auto& worker : workers) {
      entries.push_back(worker->entry());
    }
    api->relay().submit(WorkersChanged{.workers = entries, .stores = stores});
  }
  uint16_t port() { return api->server().port(); }

  net::HttpReply exchange(std::string_view method, std::string_view path, std::string body,
                          std::string_view header_lines = "") {
    std::optional<Result<net::HttpReply>> got;
    net::fetch(loop, *client,
               {.to = {"127.0.0.1", port()},
                .method = method,
                .target = path,
                .header_lines = header_lines,
                .body = std::move(body)},
               1 << 20, [&got](Result<net::HttpReply> reply) { got = std::move(reply); });
    EXPECT_TRUE(turn_until(loop, [&got] { return got.has_value(); }));
    if (!got || !*got) {
      ADD_FAILURE() << (got ? got->error().message : "no reply");
      return {};
    }
    return **got;
  }
  net::HttpReply complete(const std::string& body = kPrompt) {
    return exchange("POST", "/v1/completions", body);
  }
  std::string metrics() { return exchange("GET", "/metrics", "").body; }
  // Every leg has ended, also in the table of workers.
  void expect_idle() {
    EXPECT_TRUE(turn_until(loop, [this] { return api->relay().core().requests_alive() == 0; }));
    for (const auto& [id, worker] : api->relay().core().workers().all()) {
      EXPECT_EQ(worker.requests_in_flight, 0U) << worker.entry.name;
    }
  }

  net::EventLoop loop;
  RouterConfig config;
  std::vector<std::unique_ptr<FakeWorker>> workers;
  std::vector<net::WorkerEntry> stores;
  std::unique_ptr<HttpApi> api;
  std::unique_ptr<net::HttpClient> client;
  bool drained = false;
};

// --- who is there

struct MembersTest : HttpApiTest {
  static std::string subscribe() {
    return "GET /pdjob/members HTTP/1.1\r\nHost: r\r\nAccept: text/event-stream\r\n\r\n";
  }
  static net::WorkerEntry member(const std::string& name, net::Role role) {
    return {.name = name, .role = role, .host = "10.0.0.1", .port = 80, .model = "m"};
  }
  const Members kBefore = {.routers = {member("router-0", net::Role::kRouter)}};
  const Members kAfter = {.routers = kBefore.routers,
                          .workers = {member("d0", net::Role::kDecode)}};
};

TEST_F(MembersTest, ASubscriberHearsOfEveryChangeAndSeesTheWholeList) {
  serve();
  api->members().publish(kBefore);
  RawClient raw(port(), subscribe());
  ASSERT_TRUE(turn_until(loop, [&] {
    return raw.has(
        "id: 1\nevent: members\ndata: {\"version\":1,\"routers\":[{\"name\":"
        "\"router-0\",\"url\":\"http://10.0.0.1:80\"}],\"workers\":[]}\n\n");
  })) << raw.received;
  api->members().publish(kBefore);  // Nothing changed, so this is no event.
  api->members().publish(kAfter);
  const std::string expected =
      R"("workers":[{"name":"d0","role":"decode","url":"http://10.0.0.1:80","model":"m"}])";
  ASSERT_TRUE(turn_until(loop, [&] {
    return raw.has("id: 2\nevent: members") && raw.has(expected);
  })) << raw.received;
  EXPECT_NE(exchange("GET", "/pdjob/members", "").body.find(expected), std::string::npos);
}

TEST_F(MembersTest, ADrainingRouterEndsItsSubscriptions) {
  serve();
  RawClient raw(port(), subscribe());
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has("id: 0"); }));
  api->members().close();
  EXPECT_TRUE(turn_until(loop, [&] { return raw.has("\r\n0\r\n\r\n"); })) << raw.received;
  EXPECT_EQ(exchange("GET", "/pdjob/members", "", "Accept: text/event-stream\r\n").status, 503);
  EXPECT_TRUE(turn_until(loop, [&] { return api->server().replies_alive() == 0; }));
}

TEST_F(MembersTest, WhoDoesNotReadIsCutOffAndNobodyElse) {
  serve();
  RawClient deaf(port(), subscribe());
  RawClient raw(port(), subscribe());
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has("id: 0"); }));
  Members many = kAfter;
  many.workers[0].model = std::string(limits::kHttpSendQueueBytesMax, 'm');
  for (int version = 1; version <= 20; ++version) {
    many.workers[0].port = static_cast<uint16_t>(version);
    api->members().publish(many);
    const std::string id = "id: " + std::to_string(version) + "\n";
    ASSERT_TRUE(turn_until(loop, [&] { return raw.has(id); })) << version;
    raw.received.clear();
  }
  EXPECT_TRUE(turn_until(loop, [&] { return api->server().replies_alive() == 1; }));
}

// --- aborted requests

constexpr const char* kGenerate = R"({"input_ids":[1,2],"rid":"mine","return_logprob":true})";

TEST_F(HttpApiTest, GenerateIsSentAsBothLegs) {
  FakeWorker& prefill = add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  serve();
  for (const char* method : {"POST", "PUT"}) {
    EXPECT_EQ(exchange(method, "/generate", kGenerate).status, 200);
  }
  ASSERT_EQ(prefill.heard.size(), 2U);
  ASSERT_EQ(decode.heard.size(), 2U);
  EXPECT_EQ(prefill.heard[1].path, "/generate");
  EXPECT_NE(prefill.heard[1].body.find(R"("do_remote_decode":true)"), std::string::npos);
  EXPECT_NE(decode.heard[1].body.find(R"("do_remote_prefill":true)"), std::string::npos);
  EXPECT_EQ(exchange("GET", "/generate", "").status, 405);
  EXPECT_EQ(exchange("POST", "/generate", R"({"sampling_params":{"n":"x"}})").status, 400);
  expect_idle();
}

TEST_F(HttpApiTest, AnAbortedRequestThatNoWorkerHasIsAnsweredByTheRouter) {
  config.queue_timeout = std::chrono::seconds(60);
  config.decode_in_flight = 1;
  FakeWorker& worker = add("w0", net::Role::kBoth);
  worker.answer = [](net::HttpServer&, net::ExchangeId, const FakeWorker::Heard&) {};
  serve();
  RawClient first(port(), post("/v1/completions", kPrompt));
  ASSERT_TRUE(turn_until(loop, [&] { return worker.heard.size() == 1; }));
  RawClient queued(port(), post("/generate", kGenerate));
  ASSERT_TRUE(turn_until(loop, [&] { return api->relay().core().requests_alive() == 2; }));
  EXPECT_EQ(exchange("POST", "/abort_request", R"({"rid":"other"})").status, 200);
  EXPECT_EQ(api->relay().core().requests_alive(), 2U);
  EXPECT_EQ(exchange("POST", "/abort_requests", R"({"request_ids":["mine"]})").body,
            R"({"status":"aborted","aborted":1})");
  ASSERT_TRUE(turn_until(loop, [&] { return queued.has("}}"); })) << queued.received;
  EXPECT_TRUE(queued.head().starts_with("HTTP/1.1 200 ")) << queued.head();
  EXPECT_NE(queued.body().find(R"("id":"mine","finish_reason":{"type":"abort")"),
            std::string::npos);
  EXPECT_NE(queued.body().find(R"("output_token_logprobs":[])"), std::string::npos);
  EXPECT_EQ(worker.heard.size(), 1U);
  first.leave();
  expect_idle();
}

TEST_F(HttpApiTest, AnAbortedRequestIsAnsweredByItsDecodeWorker) {
  FakeWorker& prefill = add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  std::optional<net::ExchangeId> held;
  int asked = 0;
  std::string leg;
  decode.answer = [&](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard& heard) {
    if (heard.path != "/abort_request") {
      held = id;
      leg = heard.leg;
      return;
    }
    server.reply(id, 200, "application/json", "");
    asked += 1;
    if (asked == 2) {  // At the first time it did not know the request yet.
      EXPECT_EQ(heard.body, R"({"rid":[")" + leg + R"("],"abort_all":false})");
      server.reply(*held, 200, "application/json", R"({"partial":true})",
                   {{"x-pdjob-aborted", "1"}});
    }
  };
  prefill.answer = [](net::HttpServer&, net::ExchangeId, const FakeWorker::Heard&) {};
  serve();
  RawClient raw(port(), post("/generate", kGenerate, "x-request-id: r-17\r\n"));
  ASSERT_TRUE(turn_until(loop, [&] { return held.has_value(); }));
  EXPECT_EQ(exchange("POST", "/abort_request", R"({"rid":"mine"})").status, 200);
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has(R"({"partial":true})"); })) << raw.received;
  EXPECT_GT(leg.size(), 32U);
  EXPECT_EQ(prefill.heard[0].leg, "");
  // Its prefill leg has become useless, and frees its worker.
  EXPECT_TRUE(turn_until(loop, [&] { return prefill.clients_gone == 1; }));
  expect_idle();
}

// A worker that answers aborts, and nothing else by itself.
struct AbortHttpTest : HttpApiTest {
  FakeWorker& add_slow(bool foreign = false) {
    FakeWorker& worker = add("w0", net::Role::kBoth, foreign);
    worker.answer = [this](net::HttpServer& server, net::ExchangeId id,
                           const FakeWorker::Heard& heard) {
      if (heard.path == "/abort_request") {
        asked.push_back(heard.body);
        server.reply(id, 200, "application/json", "");
      } else {
        held.emplace_back(&server, id);
        legs.push_back(heard.leg);
      }
    };
    return worker;
  }
  bool was_asked(const std::string& name) const {
    return std::ranges::any_of(asked, [&](const std::string& body) {
      return body.find('"' + name + '"') != std::string::npos;
    });
  }
  bool wait(Duration how_long) {
    const Instant end = loop.now() + how_long;
    return turn_until(loop, [&] { return loop.now() >= end; });
  }

  std::vector<std::string> asked;
  std::vector<std::pair<net::HttpServer*, net::ExchangeId>> held;
  std::vector<std::string> legs;
};

TEST_F(AbortHttpTest, TellsApartRequestsWithOneRequestId) {
  add_slow();
  serve();
  const std::string same = "x-request-id: same\r\nx-pdjob-leg: guessed\r\n";
  RawClient a(port(), post("/generate", R"({"input_ids":[1],"rid":"a"})", same));
  ASSERT_TRUE(turn_until(loop, [&] { return legs.size() == 1; }));
  RawClient b(port(), post("/generate", R"({"input_ids":[1],"rid":"b"})", same));
  ASSERT_TRUE(turn_until(loop, [&] { return legs.size() == 2; }));
  EXPECT_NE(legs[0], legs[1]);
  EXPECT_EQ(exchange("POST", "/abort_request", R"({"rid":"b"})").status, 200);
  ASSERT_TRUE(turn_until(loop, [&] { return was_asked(legs[1]); }));
  ASSERT_TRUE(turn_until(loop, [&] { return b.has(R"("type":"abort")"); })) << b.received;
  EXPECT_FALSE(was_asked(legs[0]));
  EXPECT_FALSE(a.has("HTTP"));
  a.leave();
  expect_idle();
}

TEST_F(AbortHttpTest, OneRidOfABatchLeavesTheOtherPrompts) {
  add_slow();
  serve();
  RawClient raw(port(), post("/generate", R"({"input_ids":[[1],[2]],"rid":["a","b"]})"));
  ASSERT_TRUE(turn_until(loop, [&] { return legs.size() == 1; }));
  EXPECT_EQ(exchange("POST", "/abort_request", R"({"rid":"b"})").status, 200);
  ASSERT_TRUE(wait(seconds(1)));
  EXPECT_TRUE(was_asked(legs[0] + "/1"));
  EXPECT_FALSE(was_asked(legs[0] + "/0") || was_asked(legs[0]));
  EXPECT_FALSE(raw.has("HTTP")) << raw.received;
  EXPECT_EQ(exchange("POST", "/abort_request", R"({"rid":"a"})").status, 200);
  ASSERT_TRUE(turn_until(loop, [&] { return was_asked(legs[0]); }));
  ASSERT_TRUE(turn_until(loop, [&] {
    return raw.has(R"("id":"b","finish_reason":{"type":"abort")");
  })) << raw.received;
  expect_idle();
}

TEST_F(AbortHttpTest, ManyCallsMakeNobodyLessPatient) {
  add_slow();
  serve();
  RawClient begun(port(), post("/v1/completions", kStreamed, "x-request-id: begun\r\n"));
  ASSERT_TRUE(turn_until(loop, [&] { return held.size() == 1; }));
  held[0].first->begin(held[0].second, 200, "text/event-stream");
  held[0].first->write(held[0].second, "data: first\n\n");
  ASSERT_TRUE(turn_until(loop, [&] { return begun.has("first"); }));
  RawClient silent(port(), post("/generate", kGenerate));
  ASSERT_TRUE(turn_until(loop, [&] { return held.size() == 2; }));
  const Instant start = loop.now();
  for (int call = 0; call < 10; ++call) {
    EXPECT_EQ(exchange("POST", "/abort_requests", "{}").body,
              R"({"status":"aborted","aborted":2})");
  }
  EXPECT_FALSE(silent.has("HTTP")) << silent.received;
  ASSERT_TRUE(turn_until(loop, [&] { return silent.has(R"("type":"abort")"); })) << silent.received;
  EXPECT_GE(loop.now() - start, milliseconds(800));
  ASSERT_TRUE(wait(milliseconds(400)));
  EXPECT_FALSE(begun.poll()) << "its worker lives";
  held[0].first->write(held[0].second, "data: last\n\n");
  held[0].first->end(held[0].second);
  ASSERT_TRUE(turn_until(loop, [&] { return begun.has("\r\n0\r\n"); }));
  EXPECT_TRUE(begun.has("last"));
  EXPECT_LT(asked.size(), 40U);
  expect_idle();
}

TEST_F(AbortHttpTest, AForeignEngineIsNotAsked) {
  add_slow(/*foreign=*/true);
  serve();
  RawClient raw(port(), post("/v1/completions", kPrompt));
  ASSERT_TRUE(turn_until(loop, [&] { return held.size() == 1; }));
  EXPECT_EQ(legs[0], "");
  EXPECT_EQ(exchange("POST", "/abort_request", R"({"abort_all":true})").status, 200);
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has(R"("finish_reason":"abort")"); }));
  EXPECT_TRUE(asked.empty());
  expect_idle();
}

TEST_F(AbortHttpTest, ATenantWithAllItsRequestsUnderWayCanAbortThem) {
  config.tenants = {
      {.name = "a", .key_sha256 = sha256_of("sk-a"), .requests_per_minute = 2, .requests_max = 1},
      {.name = "b", .key_sha256 = sha256_of("sk-b")}};
  add_slow();
  serve();
  const std::string of_a = "Authorization: Bearer sk-a\r\n";
  const std::string of_b = "Authorization: Bearer sk-b\r\n";
  RawClient raw(port(), post("/generate", kGenerate, of_a));
  ASSERT_TRUE(turn_until(loop, [&] { return held.size() == 1; }));
  EXPECT_EQ(exchange("POST", "/generate", kGenerate, of_a).status, 429);
  EXPECT_EQ(exchange("POST", "/abort_requests", "{}").status, 401);
  EXPECT_EQ(exchange("POST", "/abort_requests", "{}", of_b).body,
            R"({"status":"aborted","aborted":0})");
  for (int call = 0; call < 5; ++call) {
    EXPECT_EQ(exchange("POST", "/abort_requests", "{}", of_a).body,
              R"({"status":"aborted","aborted":1})");
  }
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has(R"("type":"abort")"); })) << raw.received;
  expect_idle();
}

TEST_F(AbortHttpTest, ABodyThatCannotBeReadIsRefusedInsteadOfAborted) {
  add_slow();
  serve();
  RawClient raw(port(), post("/generate", R"({"input_ids":[1],"text":"x","rid":"mine"})"));
  ASSERT_TRUE(turn_until(loop, [&] { return held.size() == 1; }));
  EXPECT_EQ(exchange("POST", "/abort_request", R"({"rid":"mine"})").status, 200);
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has("HTTP/1.1 400 "); })) << raw.received;
  expect_idle();
}

TEST_F(AbortHttpTest, AnswersAnyNumberOfThem) {
  add_slow();
  config.decode_in_flight = 1;
  config.queue_timeout = seconds(60);
  serve();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 150; ++i) {
    clients.push_back(std::make_unique<RawClient>(port(), post("/generate", kGenerate)));
  }
  ASSERT_TRUE(turn_until(loop, [&] { return api->relay().core().requests_alive() == 150; }));
  EXPECT_EQ(exchange("POST", "/abort_requests", "{}").body,
            R"({"status":"aborted","aborted":150})");
  for (const auto& each : clients) {
    ASSERT_TRUE(turn_until(loop, [&] { return each->has(R"("type":"abort")"); }));
  }
  expect_idle();
}

TEST_F(HttpApiTest, AnAbortedRequestDoesNotWaitForAWorkerThatIsSilent) {
  FakeWorker& worker = add("w0", net::Role::kBoth);
  worker.answer = [](net::HttpServer&, net::ExchangeId, const FakeWorker::Heard&) {};
  serve();
  RawClient raw(port(), post("/generate", R"({"input_ids":[1,2],"rid":"mine","stream":true})"));
  ASSERT_TRUE(turn_until(loop, [&] { return worker.heard.size() == 1; }));
  const Instant begun = loop.now();
  EXPECT_EQ(exchange("POST", "/abort_request", R"({"abort_all":true})").status, 200);
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has("data: [DONE]"); })) << raw.received;
  EXPECT_LT(loop.now() - begun, seconds(10));
  EXPECT_TRUE(turn_until(loop, [&] { return worker.clients_gone >= 1; }));
  expect_idle();
}

TEST_F(HttpApiTest, AnAdapterStaysAtOneWorker) {
  for (const char* name : {"w0", "w1", "w2", "w3"}) {
    add(name, net::Role::kBoth, /*foreign=*/true).model.clear();
  }
  config.decode_policy = PolicyKind::kConsistentHash;
  config.affinity = Affinity::kModel;
  serve();
  std::set<size_t> used;
  for (const std::string adapter : {"lora-a", "lora-b", "lora-c", "lora-d", "lora-e", "lora-f"}) {
    std::vector<size_t> before;
    for (const auto& worker : workers) {
      before.push_back(worker->heard.size());
    }
    for (int times = 0; times < 5; ++times) {
      // The adapter has many users.
      complete(R"({"model":")" + adapter + R"(","prompt":"x","user":"u)" + std::to_string(times) +
               R"("})");
    }
    for (size_t i = 0; i < workers.size(); ++i) {
      const size_t heard = workers[i]->heard.size() - before[i];
      EXPECT_TRUE(heard == 0 || heard == 5) << adapter << " at " << i;
      if (heard > 0) {
        used.insert(i);
      }
    }
  }
  EXPECT_GT(used.size(), 1U);
}

// --- traces

TEST_F(HttpApiTest, TheLegsOfARequestAreSpansOfItsClientsTrace) {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  FakeWorker& prefill = add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  FakeWorker collector(loop, "collector", net::Role::kBoth);
  config.tracing.endpoint = "http://" + collector.address().to_string();
  config.tracing.ratio = 0;  // Except for clients that ask for a trace.
  serve();
  complete();
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt,
                     "traceparent: 00-" + trace + "-b7ad6b7169203331-01\r\n")
                .status,
            200);
  ASSERT_TRUE(turn_until(loop, [&] { return !collector.heard.empty(); }));
  EXPECT_EQ(collector.heard[0].path, "/v1/traces");
  const std::string& spans = collector.heard[0].body;
  EXPECT_NE(spans.find(R"("parentSpanId":"b7ad6b7169203331","name":"POST /v1/completions")"),
            std::string::npos)
      << spans;
  for (const FakeWorker* worker : {&prefill, &decode}) {
    EXPECT_EQ(worker->heard.at(0).traceparent, "");
    const std::string& told = worker->heard.at(1).traceparent;
    ASSERT_EQ(told.size(), 55U);
    EXPECT_EQ(told.substr(3, 32), trace);
    EXPECT_NE(spans.find(R"("spanId":")" + told.substr(36, 16)), std::string::npos) << spans;
  }
}

TEST_F(HttpApiTest, ACollectorThatTakesNothingIsInNobodysWay) {
  add("w0", net::Role::kBoth);
  FakeWorker collector(loop, "collector", net::Role::kBoth);
  config.tracing.endpoint = "http://" + collector.address().to_string();
  collector.die();
  serve();
  EXPECT_EQ(complete().status, 200);
  EXPECT_TRUE(turn_until(loop, [&] {
    return api->relay().watch().metrics_text().find("pdjob_router_spans_dropped 2\n") !=
           std::string::npos;
  }));
}

TEST_F(HttpApiTest, ASpanIsShortWhateverItsClientSays) {
  add("w0", net::Role::kBoth).model = "";
  FakeWorker collector(loop, "collector", net::Role::kBoth);
  config.tracing.endpoint = "http://" + collector.address().to_string();
  serve();
  const std::string name(100'000, 'm');
  EXPECT_EQ(complete(R"({"prompt":"Once","model":")" + name + R"("})").status, 200);
  ASSERT_TRUE(turn_until(loop, [&] { return !collector.heard.empty(); }));
  EXPECT_LT(collector.heard[0].body.size(), 10'000U);
}

// --- legs

TEST_F(HttpApiTest, SendsBothLegsWithOneTransferId) {
  FakeWorker& prefill = add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  serve();
  RawClient raw(port(),
                post("/v1/completions", kPrompt,
                     "Authorization: Bearer k\r\ntraceparent: t1\r\nx-request-id: mine\r\n"));
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has(" upon"); }));
  EXPECT_EQ(raw.body(), R"({"choices":[{"text":" upon"}]})");
  EXPECT_NE(raw.head().find("x-pdjob-prefill: p0\r\n"), std::string::npos);
  EXPECT_NE(raw.head().find("x-pdjob-decode: d0\r\n"), std::string::npos);
  EXPECT_NE(raw.head().find("x-request-id: mine\r\n"), std::string::npos);
  expect_idle();
  ASSERT_EQ(prefill.heard.size(), 1U);
  ASSERT_EQ(decode.heard.size(), 1U);
  for (const FakeWorker* worker : {&prefill, &decode}) {
    EXPECT_EQ(worker->heard[0].path, "/v1/completions");
    EXPECT_EQ(worker->heard[0].authorization, "Bearer k");
    EXPECT_EQ(worker->heard[0].request_id, "mine");
    EXPECT_EQ(worker->heard[0].traceparent, "t1");
  }
  const std::string offer =
      R"("max_tokens":1,"temperature":0,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":")";
  const size_t at = prefill.heard[0].body.find(offer);
  ASSERT_NE(at, std::string::npos) << prefill.heard[0].body;
  const std::string transfer = prefill.heard[0].body.substr(at + offer.size(), 32);
  EXPECT_EQ(
      decode.heard[0].body,
      R"({"model":"m","prompt":"Once","max_tokens":3,"temperature":0,"kv_transfer_params":{"remote_engine_id":"e1","remote_port":77,)"
      R"("do_remote_prefill":true,"do_remote_decode":false,"transfer_id":")" +
          transfer + R"("}})");
}

TEST_F(HttpApiTest, BothLegsNameTheStoreOfTheirWorkersMachine) {
  const auto address = [](const std::string& machine) {
    return R"({"remote_engine_id":"e1","remote_host_id":")" + machine + R"(","remote_port":77})";
  };
  FakeWorker& prefill = add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  prefill.kv_address = address("a");
  decode.kv_address = address("b");
  for (const char* const machine : {"a", "b"}) {
    stores.push_back({.name = std::string("store-") + machine,
                      .role = net::Role::kStore,
                      .kv_address = R"({"remote_engine_id":"s","remote_host_id":")" +
                                    std::string(machine) + "\"}"});
  }
  serve();
  const std::string forged = "x-pdjob-kv-store: {}\r\nx-pdjob-kv-elsewhere: {}\r\n";
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt, forged).status, 200);
  expect_idle();
  EXPECT_EQ(prefill.heard.at(0).kv_store, stores[0].kv_address);
  EXPECT_EQ(decode.heard.at(0).kv_store, stores[1].kv_address);

  stores.clear();
  submit_members();
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt, forged).status, 200);
  expect_idle();
  EXPECT_EQ(prefill.heard.at(1).kv_store, "");
  EXPECT_EQ(decode.heard.at(1).kv_store, "");
  EXPECT_EQ(decode.heard.at(1).kv_elsewhere, "");
}

TEST_F(HttpApiTest, APrefillLegNamesAStoreThatHasMoreOfThePrompt) {
  const auto on_machine = [](const std::string& machine) {
    return R"({"remote_engine_id":"e1","remote_host_id":")" + machine + R"(","remote_port":77})";
  };
  FakeWorker& first = add("p0", net::Role::kPrefill);
  FakeWorker& second = add("p1", net::Role::kPrefill);
  add("d0", net::Role::kDecode).kv_address = on_machine("a");
  first.kv_address = on_machine("a");
  second.kv_address = on_machine("b");
  for (const char* const machine : {"a", "b"}) {
    stores.push_back({.name = std::string("store-") + machine,
                      .role = net::Role::kStore,
                      .kv_address = on_machine(machine)});
  }
  serve();
  const std::string prompt = R"({"prompt":")" + std::string(2000, 'x') + "\"}";
  for (const char* const worker : {"p0", "p1", "p1"}) {
    const std::string pin = std::string("x-pdjob-pin-prefill: ") + worker + "\r\n";
    EXPECT_EQ(exchange("POST", "/v1/completions", prompt, pin).status, 200);
    expect_idle();
  }
  EXPECT_EQ(first.heard.at(0).kv_elsewhere, "");
  EXPECT_EQ(second.heard.at(0).kv_store, stores[1].kv_address);
  EXPECT_EQ(second.heard.at(0).kv_elsewhere, stores[0].kv_address);
  EXPECT_EQ(second.heard.at(1).kv_elsewhere, "") << "now its own store has it";
}

TEST_F(HttpApiTest, PassesTheParamsOfATwoHopOn) {
  FakeWorker& prefill = add("p0", net::Role::kPrefill, true);
  FakeWorker& decode = add("d0", net::Role::kDecode, true);
  serve();
  EXPECT_EQ(complete().status, 200);
  ASSERT_EQ(prefill.heard.size(), 1U);
  ASSERT_EQ(decode.heard.size(), 1U);
  EXPECT_NE(prefill.heard[0].body.find(R"("remote_engine_id":null)"), std::string::npos);
  EXPECT_NE(decode.heard[0].body.find(
                R"("kv_transfer_params":{"remote_block_ids":[[1]],"remote_port":9}})"),
            std::string::npos)
      << decode.heard[0].body;
  EXPECT_FALSE(decode.heard[0].request_id.empty());
  EXPECT_EQ(decode.heard[0].request_id, prefill.heard[0].request_id);
  for (const char* phase : {"queue", "prefill", "first_byte", "decode", "request"}) {
    const std::string count = std::string("pdjob_router_") + phase + "_seconds_count 1\n";
    EXPECT_NE(metrics().find(count), std::string::npos) << phase;
  }
}

TEST_F(HttpApiTest, PassesAStreamByteForByte) {
  add("b0", net::Role::kBoth);
  serve();
  RawClient direct(workers[0]->address().port, post("/v1/completions", kStreamed));
  RawClient routed(port(), post("/v1/completions", kStreamed));
  ASSERT_TRUE(
      turn_until(loop, [&] { return direct.has("\r\n0\r\n\r\n") && routed.has("\r\n0\r\n\r\n"); }));
  EXPECT_EQ(routed.body(), direct.body());
}

TEST_F(HttpApiTest, TakesChunksOffForAnOldClient) {
  add("b0", net::Role::kBoth);
  serve();
  RawClient raw(port(), post("/v1/completions", kStreamed, "", "HTTP/1.0"));
  ASSERT_TRUE(turn_until(loop, [&] { return raw.poll(); }));
  EXPECT_EQ(raw.body(), "data: {\"t\":1}\n\ndata: {\"t\":2}\n\ndata: [DONE]\n\n");
  EXPECT_EQ(raw.head().find("hunked"), std::string::npos);
}

TEST_F(HttpApiTest, KeepsClientConnectionsOverManyRequests) {
  add("p0", net::Role::kPrefill);
  add("d0", net::Role::kDecode);
  serve();
  std::string pipelined;
  for (int i = 0; i < 3; ++i) {
    pipelined += post("/v1/completions", i == 1 ? kStreamed : kPrompt);
  }
  RawClient raw(port(), pipelined);
  ASSERT_TRUE(turn_until(loop, [&] {
    raw.poll();
    size_t replies = 0;
    for (size_t at = raw.received.find("HTTP/1.1 200"); at != std::string::npos;
         at = raw.received.find("HTTP/1.1 200", at + 1)) {
      replies += 1;
    }
    return replies == 3 && raw.received.ends_with("upon\"}]}");
  }));
  EXPECT_FALSE(raw.closed);
}

TEST_F(HttpApiTest, NoRequestFailsWhenOneOfTwoPrefillWorkersIsDead) {
  config.prefill_policy = config.decode_policy = PolicyKind::kRoundRobin;
  add("p0", net::Role::kPrefill);
  add("p1", net::Role::kPrefill).die();
  add("d0", net::Role::kDecode);
  serve();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(complete().status, 200) << i;
  }
  EXPECT_NE(metrics().find(R"(pdjob_router_retries_total{reason="unreachable"} )"),
            std::string::npos);
  EXPECT_NE(metrics().find("pdjob_router_degraded_total 0"), std::string::npos);
  expect_idle();
}

TEST_F(HttpApiTest, NoRequestFailsWhenOneOfTwoDecodeWorkersIsDead) {
  config.prefill_policy = config.decode_policy = PolicyKind::kRoundRobin;
  add("p0", net::Role::kPrefill);
  add("d0", net::Role::kDecode);
  add("d1", net::Role::kDecode).die();
  serve();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(complete().status, 200) << i;
  }
  expect_idle();
}

TEST_F(HttpApiTest, UsesAWorkerAgainThatCameBack) {
  config.decode_policy = PolicyKind::kRoundRobin;
  add("d0", net::Role::kBoth);
  FakeWorker& other = add("d1", net::Role::kBoth);
  other.die();
  serve();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(complete().status, 200);
  }
  other.revive();
  EXPECT_TRUE(turn_until(loop, [&] { return complete().status == 200 && !other.heard.empty(); }));
}

TEST_F(HttpApiTest, DecodesAloneWhenTheOnlyPrefillWorkerIsDead) {
  add("p0", net::Role::kPrefill).die();
  FakeWorker& decode = add("d0", net::Role::kDecode);
  serve();
  EXPECT_EQ(complete().status, 200);
  ASSERT_FALSE(decode.heard.empty());
  EXPECT_EQ(decode.heard.back().body, kPrompt);
  EXPECT_NE(metrics().find("pdjob_router_degraded_total 1"), std::string::npos);
}

TEST_F(HttpApiTest, ARetryThatHandsOverIsNotCalledDegraded) {
  FakeWorker& alone = add("d0", net::Role::kDecode);
  alone.answer = [](net::HttpServer&, net::ExchangeId, const FakeWorker::Heard&) {};
  serve();
  RawClient raw(port(), post("/v1/completions", kPrompt));
  ASSERT_TRUE(turn_until(loop, [&] { return !alone.heard.empty(); }));
  EXPECT_NE(metrics().find("pdjob_router_degraded_total 1"), std::string::npos);
  add("p0", net::Role::kPrefill);
  add("d1", net::Role::kDecode);
  submit_members();
  alone.die();
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has(" upon"); }));
  EXPECT_TRUE(raw.received.starts_with("HTTP/1.1 200")) << raw.head();
  EXPECT_NE(raw.head().find("x-pdjob-prefill: p0"), std::string::npos) << raw.head();
  EXPECT_EQ(raw.head().find("x-pdjob-degraded"), std::string::npos) << raw.head();
}

TEST_F(HttpApiTest, PairsThatCannotHandOverAreListedWithTheReason) {
  add("p0", net::Role::kPrefill);
  add("d0", net::Role::kDecode);
  serve();
  std::vector<net::WorkerEntry> entries = {workers[0]->entry(), workers[1]->entry()};
  entries[1].local_links = true;
  api->relay().submit(WorkersChanged{entries});
  const std::string listed = R"("pairs_without_hand_over":[)";
  EXPECT_NE(exchange("GET", "/pdjob/workers", "").body.find(listed + "]"), std::string::npos);
  entries[1].host = "10.0.0.2";
  api->relay().submit(WorkersChanged{entries});
  EXPECT_NE(exchange("GET", "/pdjob/workers", "")
                .body.find(listed + R"({"prefill":"p0","decode":"d0","why":"they are on two)"),
            std::string::npos);
}

TEST_F(HttpApiTest, CancelsBothLegsWhenTheClientLeaves) {
  FakeWorker& prefill = add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  prefill.answer =
      decode.answer = [](net::HttpServer&, net::ExchangeId, const FakeWorker::Heard&) {};
  serve();
  RawClient raw(port(), post("/v1/completions", kPrompt));
  ASSERT_TRUE(turn_until(loop, [&] { return !prefill.heard.empty() && !decode.heard.empty(); }));
  raw.leave();
  EXPECT_TRUE(
      turn_until(loop, [&] { return prefill.clients_gone == 1 && decode.clients_gone == 1; }));
  expect_idle();
  EXPECT_NE(metrics().find(R"(pdjob_router_requests_total{outcome="client_gone"} 1)"),
            std::string::npos);
}

TEST_F(HttpApiTest, CutsTheConnectionWhenTheWorkerDiesAfterTheFirstByte) {
  FakeWorker& worker = add("b0", net::Role::kBoth);
  worker.answer = [](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    server.begin(id, 200, "text/event-stream");
    server.write(id, "data: first\n\n");
  };
  serve();
  RawClient raw(port(), post("/v1/completions", kStreamed));
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has("first"); }));
  worker.die();
  EXPECT_TRUE(turn_until(loop, [&] { return raw.poll(); }));
  EXPECT_EQ(raw.body().find("\r\n0\r\n"), std::string::npos) << "it must not look complete";
  expect_idle();
}

TEST_F(HttpApiTest, ARequestThatKillsAfterItsBodyWasFreedIsCutAndNoMore) {
  config.hears_losses = true;
  config.continuations = 0;
  const std::vector<FakeWorker*> both = {&add("b0", net::Role::kBoth),
                                         &add("b1", net::Role::kBoth)};
  for (FakeWorker* worker : both) {
    worker->answer = [](net::HttpServer&, net::ExchangeId, const FakeWorker::Heard&) {};
  }
  serve();
  const auto entry_of = [](const FakeWorker& worker) {
    net::WorkerEntry entry = worker.entry();
    entry.engine_id = worker.name();
    return entry;
  };
  const auto crashed = [](const FakeWorker& worker) {
    return net::Departure{
        .name = worker.name(), .engine_id = worker.name(), .cause = net::LossCause::kCrash};
  };
  api->relay().submit(WorkersChanged{{entry_of(*both[0]), entry_of(*both[1])}, {}});
  RawClient raw(port(), post("/v1/completions", kStreamed));
  ASSERT_TRUE(turn_until(loop, [&] { return both[0]->heard.size() + both[1]->heard.size() == 1; }));
  FakeWorker& first = *both[both[0]->heard.empty() ? 1 : 0];
  FakeWorker& second = *both[both[0]->heard.empty() ? 0 : 1];
  second.answer = [](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    server.begin(id, 200, "text/event-stream");
    server.write(id, "data: first\n\n");
  };
  first.die();
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has("first"); }));
  api->relay().submit(WorkersChanged{{entry_of(second)}, {crashed(first)}});
  // The second worker hangs. The router is told while the connection still exists.
  net::Departure hung = crashed(second);
  hung.cause = net::LossCause::kHang;
  api->relay().submit(WorkersChanged{{}, {crashed(first), hung}});
  EXPECT_TRUE(turn_until(loop, [&] { return raw.poll(); }));
  EXPECT_EQ(raw.body().find("\r\n0\r\n"), std::string::npos) << "it must not look complete";
  EXPECT_NE(metrics().find("pdjob_router_requests_blamed_total{tenant=\"\"} 1"), std::string::npos);
  expect_idle();
}

// Workers that tell two tokens of a whole reply; the first one that is asked then dies.
struct ContinuedReplyTest : HttpApiTest {
  ContinuedReplyTest() {
    for (const char* name : {"b0", "b1"}) {
      add(name, net::Role::kBoth).answer = [this](net::HttpServer& server, net::ExchangeId id,
                                                  const FakeWorker::Heard& heard) {
        bodies.push_back(heard.body);
        progress.push_back(heard.progress);
        if (bodies.size() == 1) {
          server.interim(id, "x-pdjob-tokens: 0@0.5.6;w=61;m=ab\r\n");
          server.abort(id);
        } else {
          server.interim(id, "x-pdjob-tokens: 0@0.5.6.7;w=61;m=ab\r\n");
          server.reply(id, 200, "application/json", R"({"whole":true})");
        }
      };
    }
  }
  std::vector<std::string> bodies;
  std::vector<std::string> progress;
};

TEST_F(ContinuedReplyTest, GoesOnAtAnotherWorkerWithWhatTheFirstOneTold) {
  serve();
  EXPECT_EQ(complete().body, R"({"whole":true})");
  ASSERT_EQ(bodies.size(), 2U);
  EXPECT_EQ(progress[0], "64");
  EXPECT_EQ(bodies[0], kPrompt);
  EXPECT_NE(bodies[1].find(R"("pdjob_resume":[[5,6]],)"
                           R"("pdjob_resume_weights":[[{"version":"61","start":0,"end":2}]],)"
                           R"("pdjob_resume_model":"ab")"),
            std::string::npos)
      << bodies[1];
  expect_idle();
}

TEST_F(ContinuedReplyTest, IsToldToAClientThatAsks) {
  serve();
  RawClient raw(port(), post("/v1/completions", kPrompt, "x-pdjob-progress: 2\r\n"));
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has(R"({"whole":true})"); })) << raw.received;
  EXPECT_EQ(progress[0], "2");
  EXPECT_TRUE(raw.received.starts_with(
      "HTTP/1.1 103 Early Hints\r\nx-pdjob-tokens: 0@0.5.6;w=61;m=ab\r\n\r\n"
      "HTTP/1.1 103 Early Hints\r\nx-pdjob-tokens: 0@0.5.6.7;w=61;m=ab\r\n\r\n"
      "HTTP/1.1 200 "))
      << raw.received;
}

TEST_F(ContinuedReplyTest, BeginsWithTheTokensOfAClientThatAsks) {
  serve();
  const std::string resumed =
      R"({"model":"m","prompt":"Once","max_tokens":3,"pdjob_resume":[[5]]})";
  RawClient raw(port(), post("/v1/completions", resumed, "x-pdjob-progress: 2\r\n"));
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has(R"({"whole":true})"); })) << raw.received;
  EXPECT_EQ(bodies[0], resumed);
  EXPECT_NE(bodies[1].find(R"("pdjob_resume":[[5,6]])"), std::string::npos) << bodies[1];
  EXPECT_EQ(complete(resumed).body, R"({"whole":true})");
  EXPECT_EQ(bodies[2].find("pdjob_resume"), std::string::npos) << "others have no such field";
}

TEST_F(ContinuedReplyTest, IsNotAskedForWhereNothingContinues) {
  config.continuations = 0;
  serve();
  EXPECT_EQ(complete().body, R"({"whole":true})");
  EXPECT_EQ(progress[0], "");
}

TEST_F(HttpApiTest, AStreamDoesNotGoOnWithAnAnswerThatIsNone) {
  const auto begin_or_say_nothing = [begun = false](net::HttpServer& server, net::ExchangeId id,
                                                    const FakeWorker::Heard&) mutable {
    if (!std::exchange(begun, true)) {
      server.begin(id, 200, "text/event-stream");
      server.write(id, "data: first\n\n", "t=0.1");
      server.abort(id);
    } else {
      server.reply(id, 204, "", "");
    }
  };
  add("b0", net::Role::kBoth).answer = begin_or_say_nothing;
  config.queue_timeout = seconds(2);
  serve();
  RawClient raw(port(), post("/v1/completions", kStreamed));
  EXPECT_TRUE(turn_until(loop, [&] { return raw.poll(); }, seconds(10)));
  EXPECT_TRUE(raw.has("first"));
  EXPECT_FALSE(raw.has("\r\n0\r\n"));
  expect_idle();
}

TEST_F(HttpApiTest, AReplyThatEndsByClosingDoesNotLookCompleteWhenItIsCut) {
  FakeWorker& worker = add("b0", net::Role::kBoth);
  worker.answer = [](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    server.begin_raw(id, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
    server.write_raw(id, "first");
  };
  config.request_timeout = milliseconds(100);
  serve();
  RawClient raw(port(), post("/v1/completions", kPrompt));
  ASSERT_TRUE(turn_until(loop, [&] { return raw.poll(); }));
  EXPECT_TRUE(raw.reset) << raw.received;
  expect_idle();
}

TEST_F(HttpApiTest, RequestsForMoreTokensThanCanBeCountedHurtNobody) {
  FakeWorker& worker = add("b0", net::Role::kBoth);
  worker.answer = [](net::HttpServer&, net::ExchangeId, const FakeWorker::Heard&) {};
  serve();
  const std::string ask = R"({"model":"m","prompt":"Once","max_tokens":10000000000000000000})";
  RawClient first(port(), post("/v1/completions", ask));
  RawClient second(port(), post("/v1/completions", ask));
  ASSERT_TRUE(turn_until(loop, [&] { return worker.heard.size() == 2; }));
  first.leave();
  second.leave();
  ASSERT_TRUE(turn_until(loop, [&] { return worker.clients_gone == 2; }));
  expect_idle();
  worker.answer = FakeWorker::answer_well;
  EXPECT_EQ(complete().status, 200);
}

TEST_F(HttpApiTest, PassesAWorkers4xxThroughUnchanged) {
  add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  decode.answer = [](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    server.reply(id, 422, "application/json", R"({"error":{"message":"no"}})");
  };
  serve();
  const net::HttpReply reply = complete();
  EXPECT_EQ(reply.status, 422);
  EXPECT_EQ(reply.body, R"({"error":{"message":"no"}})");
  EXPECT_EQ(decode.heard.size(), 1U);
}

// Damaged KV is redone with another prefill worker. The pair is avoided, and shown as suspected.
TEST_F(HttpApiTest, AvoidsAPairThatADecodeWorkerSuspects) {
  add("p0", net::Role::kPrefill);
  add("p1", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  decode.answer = [&](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    decode.answer = FakeWorker::answer_well;
    server.reply(id, 502, "application/json", "{}", {{"x-pdjob-kv-suspect", "e1"}});
  };
  serve();
  EXPECT_EQ(complete().status, 200);
  const auto sent = [&](size_t worker) { return workers[worker]->heard.size(); };
  EXPECT_NE(metrics().find("pdjob_router_pairs_suspected_total 1\n"), std::string::npos);
  EXPECT_NE(metrics().find("pdjob_router_pairs_avoided 1\n"), std::string::npos);
  const std::string seen = exchange("GET", "/pdjob/workers", "").body;
  const size_t at = seen.find(R"("avoided_pairs":[{"prefill":"p)");
  ASSERT_NE(at, std::string::npos) << seen;
  const size_t avoided = seen[seen.find(R"("prefill":"p)", at) + 12] == '0' ? 0 : 1;
  const size_t before = sent(avoided), other = sent(1 - avoided);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(complete().status, 200);
  }
  EXPECT_EQ(sent(avoided), before);
  EXPECT_EQ(sent(1 - avoided), other + 6);
}

TEST_F(HttpApiTest, PassesTheLastOverloadOnWithItsRetryAfter) {
  for (const char* name : {"b0", "b1"}) {
    add(name, net::Role::kBoth).answer = [](net::HttpServer& server, net::ExchangeId id,
                                            const FakeWorker::Heard&) {
      server.reply(id, 503, "application/json", "{}", {{"Retry-After", "7"}});
    };
  }
  serve();
  RawClient raw(port(), post("/v1/completions", kPrompt));
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has("\r\n\r\n{}"); }));
  EXPECT_TRUE(raw.has("HTTP/1.1 503"));
  EXPECT_TRUE(raw.has("Retry-After: 7\r\n"));
  EXPECT_EQ(workers[0]->heard.size() + workers[1]->heard.size(), 2U);
}

TEST_F(HttpApiTest, PausesTheWorkerOfASlowClient) {
  FakeWorker& worker = add("b0", net::Role::kBoth);
  constexpr size_t kPieces = 32;
  const std::string piece(1 << 20, 'x');
  size_t written = 0;
  worker.answer = [&](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    server.begin(id, 200, "text/plain");
    // The fake worker's queue has no bound, so everything waits there. The router must leave it
    // there.
    for (; written < kPieces; ++written) {
      server.write(id, piece);
    }
    server.end(id);
  };
  serve();
  RawClient raw(port(), post("/v1/completions", kStreamed));
  ASSERT_TRUE(turn_until(loop, [&] { return written == kPieces; }));
  turn_until(loop, [] { return false; }, milliseconds(300));
  EXPECT_EQ(api->relay().core().requests_alive(), 1U) << "all of the reply fitted into the router";
  ASSERT_TRUE(turn_until(loop, [&] {
    raw.poll();
    return raw.received.ends_with("\r\n0\r\n\r\n");
  }));
  EXPECT_GT(raw.received.size(), kPieces * piece.size());
  expect_idle();
}

TEST_F(HttpApiTest, AnswersErrorsInOpenAisShape) {
  add("b0", net::Role::kBoth);
  serve();
  const net::HttpReply lost = exchange("GET", "/nowhere", "");
  EXPECT_EQ(lost.status, 404);
  EXPECT_NE(lost.body.find(R"("type":"invalid_request_error")"), std::string::npos) << lost.body;
  EXPECT_EQ(exchange("GET", "/v1/completions", "").status, 405);
  EXPECT_EQ(exchange("POST", "/health", "").status, 405);
  const net::HttpReply model = complete(R"({"model":"other","prompt":"x"})");
  EXPECT_EQ(model.status, 404);
  EXPECT_NE(model.body.find(R"("code":"model_not_found")"), std::string::npos) << model.body;
  const net::HttpReply malformed = complete("{\"model\":");
  EXPECT_EQ(malformed.status, 400);
  EXPECT_NE(malformed.body.find(R"("type":"invalid_request_error")"), std::string::npos)
      << malformed.body;
  EXPECT_TRUE(workers[0]->heard.empty());
}

TEST_F(HttpApiTest, AnswersWhatItKnowsItself) {
  serve();
  EXPECT_EQ(exchange("GET", "/health", "").status, 503);
  api->relay().submit(WorkersChanged{.workers = {}, .asleep = true});
  EXPECT_EQ(exchange("GET", "/health", "").status, 200) << "a request starts the workers";
  add("p0", net::Role::kPrefill);
  add("d0", net::Role::kDecode);
  submit_members();
  EXPECT_EQ(exchange("GET", "/health", "").status, 200);
  EXPECT_NE(exchange("GET", "/v1/models", "").body.find(R"("id":"m")"), std::string::npos);
  const std::string listed = exchange("GET", "/pdjob/workers", "").body;
  EXPECT_NE(listed.find(R"("name":"p0")"), std::string::npos) << listed;
  EXPECT_NE(listed.find(R"("health":"healthy")"), std::string::npos) << listed;
}

TEST_F(HttpApiTest, SendsTokenizeToOneWorker) {
  add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  serve();
  EXPECT_EQ(exchange("POST", "/tokenize", R"({"prompt":"x"})").status, 200);
  ASSERT_EQ(decode.heard.size(), 1U);
  EXPECT_EQ(decode.heard[0].path, "/tokenize");
  EXPECT_EQ(decode.heard[0].body, R"({"prompt":"x"})");
  EXPECT_TRUE(workers[0]->heard.empty());
}

TEST_F(HttpApiTest, AsksOneWorkerWhatBoundsATextWithoutABody) {
  FakeWorker& decode = add("d0", net::Role::kDecode);
  serve();
  EXPECT_EQ(exchange("GET", "/tokenizer_info", "").status, 200);
  ASSERT_EQ(decode.heard.size(), 1U);
  EXPECT_EQ(decode.heard[0].path, "/tokenizer_info");
  EXPECT_EQ(decode.heard[0].body, "");
}

TEST_F(HttpApiTest, SendsWhatOnlyReadsItsPromptToAPrefillWorkerAlone) {
  FakeWorker& prefill = add("p0", net::Role::kPrefill);
  FakeWorker& decode = add("d0", net::Role::kDecode);
  serve();
  const std::string scored = R"({"prompt":["x","y"],"echo":true,"logprobs":1,"max_tokens":1})";
  EXPECT_EQ(exchange("POST", "/v1/completions", scored).status, 200);
  EXPECT_EQ(exchange("POST", "/v1/embeddings", R"({"input":"x","kv_transfer_params":{}})").status,
            200);
  ASSERT_EQ(prefill.heard.size(), 2U);
  EXPECT_EQ(prefill.heard[0].body, scored);
  EXPECT_EQ(prefill.heard[1].path, "/v1/embeddings");
  EXPECT_EQ(prefill.heard[1].body, R"({"input":"x"})") << "no client names a source of KV";
  EXPECT_TRUE(decode.heard.empty());
}

// --- routes that only engines of other makes know

struct PassedRouteTest : HttpApiTest {
  FakeWorker& add_engine(const std::string& name, net::Role role, std::vector<std::string> routes) {
    FakeWorker& worker = add(name, role, /*foreign=*/true);
    worker.routes = std::move(routes);
    return worker;
  }
};

TEST_F(PassedRouteTest, AreSentToAWorkerThatHasThemUnread) {
  FakeWorker& plain = add_engine("b0", net::Role::kBoth, {});
  FakeWorker& worker = add_engine("b1", net::Role::kBoth, {"/v1/rerank", "/v1/messages"});
  serve();
  const std::string body = R"({ "query":"q", "documents":["a","b"], "model":"m" })";
  EXPECT_EQ(exchange("POST", "/v1/rerank", body).status, 200);
  const std::string streamed = R"({"model":"m","max_tokens":3,"stream":true})";
  EXPECT_EQ(exchange("POST", "/v1/messages", streamed).body,
            "data: {\"t\":1}\n\ndata: {\"t\":2}\n\ndata: [DONE]\n\n");
  ASSERT_EQ(worker.heard.size(), 2U);
  EXPECT_EQ(worker.heard[0].path, "/v1/rerank");
  EXPECT_EQ(worker.heard[0].body, body);
  EXPECT_EQ(worker.heard[1].body, streamed);
  EXPECT_TRUE(plain.heard.empty());
  expect_idle();
}

TEST_F(PassedRouteTest, TakeForms) {
  FakeWorker& worker = add_engine("b0", net::Role::kBoth, {"/v1/audio/transcriptions"});
  worker.model = "whisper";
  serve();
  const auto form = [](const std::string& model) {
    return "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRI\r\n"
           "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" +
           model + "\r\n--b--\r\n";
  };
  const char* const type = "Content-Type: multipart/form-data; boundary=b\r\n";
  EXPECT_EQ(exchange("POST", "/v1/audio/transcriptions", form("whisper"), type).status, 200);
  EXPECT_EQ(exchange("POST", "/v1/audio/transcriptions", form("other"), type).status, 404);
  EXPECT_EQ(exchange("POST", "/v1/audio/transcriptions", "--c", type).status, 400);
  ASSERT_EQ(worker.heard.size(), 1U);
  EXPECT_EQ(worker.heard[0].body, form("whisper"));
}

TEST_F(PassedRouteTest, ThatNoWorkerHasSayWhoWould) {
  add_engine("b0", net::Role::kBoth, {"/v1/messages"});
  FakeWorker& own = add("b1", net::Role::kBoth);
  own.model = "own";
  serve();
  EXPECT_EQ(exchange("POST", "/v1/rerank", "{}").body,
            R"({"error":{"message":"No worker here serves POST /v1/rerank. Workers with an engine )"
            R"(of vLLM and SGLang do, if their model can (engine.kind).",)"
            R"("type":"invalid_request_error","param":null,"code":"not_found"}})");
  EXPECT_EQ(exchange("POST", "/v1/messages", R"({"model":"own"})").body,
            R"({"error":{"message":"No worker of this model serves POST /v1/messages.",)"
            R"("type":"invalid_request_error","param":null,"code":"not_found"}})");
  EXPECT_EQ(exchange("POST", "/nowhere", "{}").body,
            R"({"error":{"message":"Invalid URL: POST /nowhere",)"
            R"("type":"invalid_request_error","param":null,"code":"not_found"}})");
  EXPECT_EQ(exchange("GET", "/v1/messages", "").status, 405);
  EXPECT_EQ(exchange("GET", "/v1/rerank", "").status, 404);
}

TEST_F(PassedRouteTest, AreAdmittedAsOthersAre) {
  config.tenants = {{.name = "a", .key_sha256 = sha256_of("sk-a"), .requests_per_minute = 1}};
  FakeWorker& worker = add_engine("b0", net::Role::kBoth, {"/v1/rerank"});
  serve();
  const std::string key = "Authorization: Bearer sk-a\r\n";
  EXPECT_EQ(exchange("POST", "/v1/rerank", "{}").status, 401);
  EXPECT_EQ(exchange("POST", "/v1/rerank", "{}", key).status, 200);
  EXPECT_EQ(exchange("POST", "/v1/rerank", "{}", key).status, 429);
  ASSERT_EQ(worker.heard.size(), 1U);
  EXPECT_EQ(worker.heard[0].authorization, "") << "the tenant's key stays here";
}

TEST_F(PassedRouteTest, AreTriedElsewhereBeforeTheFirstByte) {
  FakeWorker& dead = add_engine("b0", net::Role::kBoth, {"/v1/rerank"});
  add_engine("b1", net::Role::kBoth, {"/v1/rerank"});
  serve();
  dead.die();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(exchange("POST", "/v1/rerank", "{}").status, 200);
  }
  expect_idle();
}

// --- adapters

TEST_F(PassedRouteTest, AnAdapterIsAModelOfItsWorkers) {
  FakeWorker& plain = add_engine("b0", net::Role::kBoth, {});
  FakeWorker& tuned = add_engine("b1", net::Role::kBoth, {});
  tuned.adapters = {"sql"};
  serve();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(complete(R"({"model":"sql","prompt":"x"})").status, 200);
  }
  EXPECT_EQ(tuned.heard.size(), 3U);
  EXPECT_TRUE(plain.heard.empty());
  EXPECT_NE(exchange("GET", "/v1/models", "").body.find(R"("root":"sql","parent":"m")"),
            std::string::npos);
  EXPECT_NE(exchange("GET", "/v1/models/sql", "").body.find(R"("id":"sql")"), std::string::npos);
}

constexpr const char* kLoadSql = R"({"lora_name":"sql","lora_path":"/adapters/sql"})";

TEST_F(PassedRouteTest, AnAdapterIsLoadedIntoAllWorkersThatCan) {
  config.open_adapters = true;
  FakeWorker& vllm =
      add_engine("b0", net::Role::kBoth, {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"});
  FakeWorker& sglang = add_engine("b1", net::Role::kBoth, {"/load_lora_adapter"});
  FakeWorker& other = add_engine("b2", net::Role::kBoth, {});
  serve();
  EXPECT_EQ(exchange("POST", "/v1/load_lora_adapter", kLoadSql).body,
            R"({"object":"adapter_order","adapter":"sql","loaded":2,"failed":0,)"
            R"("workers":["b0","b1"],"failures":[]})");
  ASSERT_EQ(vllm.heard.size(), 1U);
  EXPECT_EQ(vllm.heard[0].path, "/v1/load_lora_adapter");
  EXPECT_EQ(vllm.heard[0].body, kLoadSql);
  ASSERT_EQ(sglang.heard.size(), 1U);
  EXPECT_EQ(sglang.heard[0].path, "/load_lora_adapter");
  EXPECT_TRUE(other.heard.empty());
  EXPECT_EQ(complete(R"({"model":"sql","prompt":"x"})").status, 200) << "at once";
  EXPECT_EQ(exchange("POST", "/unload_lora_adapter", R"({"lora_name":"sql"})").body,
            R"({"object":"adapter_order","adapter":"sql","unloaded":1,"failed":0,)"
            R"("workers":["b0"],"failures":[]})");
}

TEST_F(PassedRouteTest, AnAdapterThatSomeWorkersCannotLoadIsAFailureThatNamesThem) {
  config.open_adapters = true;
  for (const char* name : {"b0", "b1"}) {
    add_engine(name, net::Role::kBoth, {"/v1/load_lora_adapter"});
  }
  workers[1]->answer = [](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    server.reply(id, 404, "application/json", "no such file");
  };
  serve();
  const net::HttpReply partly = exchange("POST", "/v1/load_lora_adapter", kLoadSql);
  EXPECT_EQ(partly.status, 502);
  EXPECT_EQ(partly.body,
            R"({"object":"adapter_order","adapter":"sql","loaded":1,"failed":1,"workers":["b0"],)"
            R"("failures":[{"worker":"b1","status":404,"message":"no such file"}]})");
  workers[0]->answer = workers[1]->answer;
  EXPECT_EQ(exchange("POST", "/v1/load_lora_adapter", kLoadSql).body, partly.body)
      << "what refuses because it has it already, has it";
  EXPECT_EQ(exchange("POST", "/v1/load_lora_adapter",
                     R"({"lora_name":"tone","lora_path":"/adapters/tone"})")
                .status,
            404);
}

TEST_F(PassedRouteTest, OrdersOfAdaptersThatAreWrongAreRefused) {
  config.open_adapters = true;
  add_engine("b0", net::Role::kBoth, {"/v1/unload_lora_adapter"});
  serve();
  EXPECT_EQ(exchange("POST", "/v1/load_lora_adapter", kLoadSql).body,
            R"({"error":{"message":"No worker here loads adapters. vLLM does with --enable-lora )"
            R"(and the variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, SGLang with --enable-lora )"
            R"((engine.args, engine.env).","type":"invalid_request_error","param":null,)"
            R"("code":"not_found"}})");
  EXPECT_EQ(exchange("POST", "/v1/unload_lora_adapter", R"({"name":"sql"})").body,
            R"({"error":{"message":"lora_name: must be a text that is not empty",)"
            R"("type":"invalid_request_error","param":"lora_name","code":null}})");
  EXPECT_EQ(exchange("POST", "/v1/unload_lora_adapter", "[]").status, 400);
  EXPECT_EQ(
      exchange("POST", "/v1/unload_lora_adapter", R"({"lora_name":"sql","model":"x"})").status,
      404);
  EXPECT_TRUE(workers[0]->heard.empty());
}

TEST_F(PassedRouteTest, OnlyWhoAdministratesLoadsAdapters) {
  add_engine("b0", net::Role::kBoth, {"/v1/load_lora_adapter"});
  serve();
  EXPECT_EQ(exchange("POST", "/v1/load_lora_adapter", kLoadSql).body,
            R"({"error":{"message":"Only who administrates may load and unload adapters: set )"
            R"(router.open_adapters, or name a tenant with admin: true.",)"
            R"("type":"invalid_request_error","param":null,"code":"forbidden"}})");
  config.tenants = {{.name = "a", .key_sha256 = sha256_of("sk-a")},
                    {.name = "root", .key_sha256 = sha256_of("sk-root"), .admin = true}};
  config.open_adapters = true;  // It counts for nothing where there are tenants.
  serve();
  const auto status = [this](const std::string& key) {
    return exchange("POST", "/v1/load_lora_adapter", kLoadSql,
                    key.empty() ? "" : "Authorization: Bearer " + key + "\r\n")
        .status;
  };
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("sk-a"), 403);
  EXPECT_EQ(status("sk-root"), 200);
}

TEST_F(HttpApiTest, ObeysPins) {
  for (const char* name : {"p0", "p1"}) {
    add(name, net::Role::kPrefill);
  }
  for (const char* name : {"d0", "d1"}) {
    add(name, net::Role::kDecode);
  }
  serve();
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt,
                     "x-pdjob-pin-prefill: p1\r\nx-pdjob-pin-decode: d1\r\n")
                .status,
            200);
  EXPECT_EQ(workers[1]->heard.size(), 1U);
  EXPECT_EQ(workers[3]->heard.size(), 1U);
  workers[1]->die();
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt, "x-pdjob-pin-prefill: p1\r\n").status,
            503);
}

TEST_F(HttpApiTest, OnlyTheLaunchersProbesReachAWorkerThatIsNotProved) {
  config.probe_key = "the key of the launcher's probes";
  FakeWorker& worker = add("d0", net::Role::kBoth);
  serve();
  net::WorkerEntry proving = worker.entry();
  proving.standing = net::Standing::kProving;
  api->relay().submit(WorkersChanged{{proving}});
  const std::string pin = "x-pdjob-pin-decode: d0\r\n";
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt, pin).status, 503);
  EXPECT_EQ(
      exchange("POST", "/v1/completions", kPrompt, pin + authorization_line("another key")).status,
      503);
  EXPECT_TRUE(worker.heard.empty());
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt, pin + authorization_line(config.probe_key))
                .status,
            200);
  EXPECT_EQ(exchange("GET", "/pdjob/workers", "").body.find(R"("standing":"serving")"),
            std::string::npos);
}

TEST_F(HttpApiTest, PinsOfTenantsDoNotCountAndKeysAreLookedAtBeforeBodies) {
  config.tenants = {{.name = "a", .key_sha256 = sha256_of("sk-a"), .requests_per_minute = 2},
                    probe_tenant("secret")};
  add("p0", net::Role::kPrefill);
  add("d0", net::Role::kDecode);
  serve();
  const std::string pins = "x-pdjob-pin-decode: nobody\r\nAuthorization: Bearer ";
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt, pins + "sk-a\r\n").status, 200);
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt, pins + "secret\r\n").status, 503);
  // The client never sends a byte of these bodies.
  const auto early = [this](const std::string& key, const std::string& path) {
    RawClient raw(port(), "POST " + path + " HTTP/1.1\r\nHost: r\r\nContent-Length: 9000000\r\n" +
                              "Expect: 100-continue\r\nAuthorization: Bearer " + key + "\r\n\r\n");
    EXPECT_TRUE(turn_until(loop, [&] { return raw.has("HTTP/1.1 "); }));
    return raw.received.substr(9, 3);
  };
  EXPECT_EQ(early("sk-b", "/v1/completions"), "401");
  EXPECT_EQ(early("sk-a", "/v1/chat/completions"), "100");
  EXPECT_EQ(exchange("POST", "/v1/completions", kPrompt, "Authorization: Bearer sk-a\r\n").status,
            200);
  EXPECT_EQ(early("sk-a", "/v1/completions"), "429");
  EXPECT_EQ(early("sk-a", "/pdjob/workers"), "413");
}

TEST_F(HttpApiTest, SaysDrainedWhenTheLastRequestHasEnded) {
  add("b0", net::Role::kBoth);
  serve();
  EXPECT_EQ(complete().status, 200);
  api->relay().submit(DrainRequested{});
  EXPECT_TRUE(drained);
}

TEST_F(HttpApiTest, FindsStaticWorkersAndThemAgainAfterARestart) {
  add("p0", net::Role::kPrefill);
  FakeWorker& foreign = add("", net::Role::kDecode, true);
  serve();
  api->relay().submit(WorkersChanged{});
  StaticWorkers members(
      loop, {{net::Role::kPrefill, workers[0]->address()}, {net::Role::kDecode, foreign.address()}},
      /*key=*/"", {}, [this](RouterEvent event) { api->relay().submit(std::move(event)); });
  const auto known = [this](const std::string& name) {
    return api->relay().core().workers().find(name);
  };
  ASSERT_TRUE(turn_until(loop, [&] {
    return known("p0") != nullptr && known(foreign.address().to_string()) != nullptr;
  }));
  EXPECT_TRUE(known("p0")->concurrent());
  EXPECT_FALSE(known(foreign.address().to_string())->concurrent());
  EXPECT_EQ(known(foreign.address().to_string())->entry.model, "m");
  workers[0]->die();
  ASSERT_TRUE(turn_until(loop, [&] { return known("p0") == nullptr; }));
  workers[0]->revive();
  EXPECT_TRUE(turn_until(loop, [&] { return known("p0") != nullptr; }));
}

struct ForeignEngineTest : HttpApiTest {
  StaticWorkers watch(Protocol protocol) {
    config.protocol = protocol;
    serve();
    api->relay().submit(WorkersChanged{});
    std::vector<StaticWorker> asked;
    for (const auto& worker : workers) {
      asked.push_back({worker->entry().role, worker->address()});
    }
    return {loop, asked, /*key=*/"", config,
            [this](RouterEvent event) { api->relay().submit(std::move(event)); }};
  }
  size_t members() const { return api->relay().core().workers().all().size(); }
};

TEST_F(ForeignEngineTest, IsWhoeverDoesNotDescribeItselfAsAPdjobWorker) {
  const std::pair<int, std::string> answers[] = {
      {200, "{}"}, {200, "<html></html>"}, {200, R"({"name":""})"},
      {401, "{}"}, {500, "what is this?"}, {200, std::string(100 * limits::kKiB, 'x')}};
  for (const auto& [status, body] : answers) {
    FakeWorker& worker = add("", net::Role::kBoth, true);
    worker.unknown_path_status = status;
    worker.unknown_path_body = body;
  }
  const StaticWorkers watched = watch(Protocol::kAuto);
  ASSERT_TRUE(turn_until(loop, [&] { return members() == std::size(answers); }));
  for (const auto& [id, worker] : api->relay().core().workers().all()) {
    EXPECT_EQ(worker.entry.model, "m");
    EXPECT_FALSE(worker.concurrent());
  }
}

TEST_F(ForeignEngineTest, IsNotTakenWherePdjobWorkersAreAskedFor) {
  add("", net::Role::kPrefill, true);
  add("d0", net::Role::kDecode);
  const StaticWorkers watched = watch(Protocol::kPdjob);
  ASSERT_TRUE(turn_until(loop, [&] { return members() == 1; }));
  turn_until(loop, [&] { return members() > 1; }, milliseconds(200));
  EXPECT_NE(api->relay().core().workers().find("d0"), nullptr);
}

TEST_F(ForeignEngineTest, IsHowPdjobWorkersAreTreatedWhereTwoHopsAreAskedFor) {
  add("p0", net::Role::kPrefill);
  add("d0", net::Role::kDecode);
  const StaticWorkers watched = watch(Protocol::kNixl);
  ASSERT_TRUE(turn_until(loop, [&] { return members() == 2; }));
  EXPECT_EQ(complete().status, 200);
  EXPECT_NE(workers[0]->heard.back().body.find(R"("remote_engine_id":null)"), std::string::npos);
  EXPECT_NE(workers[1]->heard.back().body.find(R"("remote_block_ids":[[1]])"), std::string::npos);
}

TEST_F(ForeignEngineTest, WaitsForKvAsTheRouterSeesStreamsUnlessItSaysSo) {
  add("p0", net::Role::kPrefill, true);
  FakeWorker& decode = add("d0", net::Role::kDecode, true);
  const StaticWorkers watched = watch(Protocol::kNixl);
  ASSERT_TRUE(turn_until(loop, [&] { return members() == 2; }));
  EXPECT_EQ(complete().status, 200);
  EXPECT_EQ(complete(kStreamed).status, 200);
  EXPECT_NE(metrics().find("\npdjob_router_kv_seconds_count 1\n"), std::string::npos);
  EXPECT_NE(metrics().find("\npdjob_router_prefill_seconds_count 2\n"), std::string::npos);
  decode.answer = [](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    server.begin(id, 200, "text/event-stream", {{"x-pdjob-kv-visible-seconds", "64"}});
    server.write(id, "data: [DONE]\n\n");
    server.end(id);
  };
  EXPECT_EQ(complete(kStreamed).status, 200);
  EXPECT_NE(metrics().find("\npdjob_router_kv_seconds_count 2\n"), std::string::npos);
  const net::PhaseMeans means = api->relay().watch().metrics().phases(loop.now());
  EXPECT_GE(means.kv_us, 32'000'000U);
  EXPECT_LT(means.kv_us, 40'000'000U);
  EXPECT_GT(means.queue_us, 0U);
}

TEST_F(ForeignEngineTest, MeetsInARoomOfItsPrefillWorkersBootstrapServer) {
  add("p0", net::Role::kPrefill, true);
  add("d0", net::Role::kDecode, true);
  config.fallback = Fallback::kRefuse;
  const StaticWorkers watched = watch(Protocol::kSglang);
  ASSERT_TRUE(turn_until(loop, [&] { return members() == 2; }));
  const std::string several =
      R"({"model":"m","prompt":["Once","Twice"],"n":2,"max_tokens":3,"bootstrap_room":1})";
  for (const std::string& asked : {std::string(kPrompt), several}) {
    EXPECT_EQ(complete(asked).status, 200);
    const std::string& body = workers[0]->heard.back().body;
    EXPECT_EQ(body, workers[1]->heard.back().body) << "both get the same";
    EXPECT_NE(body.find(R"("bootstrap_host":"127.0.0.1")"), std::string::npos) << body;
    EXPECT_NE(body.find(R"("bootstrap_port":8998)"), std::string::npos) << body;
    EXPECT_EQ(body.find(R"("bootstrap_room":1,)"), std::string::npos) << "the client's own";
    EXPECT_EQ(body.find("kv_transfer_params"), std::string::npos);
  }
}

// --- KServe's protocol

struct KserveTest : HttpApiTest {
  KserveTest() {
    add("d0", net::Role::kBoth).answer = [](net::HttpServer& server, net::ExchangeId id,
                                            const FakeWorker::Heard&) {
      server.reply(
          id, 200, "application/json",
          R"({"choices":[{"index":0,"text":" upon","token_ids":[1,2],"finish_reason":"stop"}]})");
    };
  }
  net::HttpReply infer(const std::string& model = "m", const std::string& more = "") {
    return exchange("POST", "/v2/models/" + model + "/infer",
                    R"({"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],)"
                    R"("data":["Once"]}])" +
                        more + "}");
  }
};

TEST_F(KserveTest, ARequestToInferIsACompletion) {
  serve();
  const net::HttpReply reply = infer("m", R"(,"parameters":{"max_tokens":3})");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(
      reply.body,
      R"({"model_name":"m","model_version":"1","outputs":[{"name":"text_output","datatype":"BYTES","shape":[1],"data":[" upon"]}]})");
  EXPECT_EQ(workers[0]->heard.back().path, "/v1/completions");
  EXPECT_EQ(workers[0]->heard.back().body, R"({"model":"m","prompt":"Once","max_tokens":3})");
  expect_idle();
}

TEST_F(KserveTest, BinaryTensorsAreSaidInAHeader) {
  serve();
  RawClient raw(port(), post("/v2/models/m/infer",
                             R"({"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],)"
                             R"("data":["Once"]}],"parameters":{"binary_data_output":true}})",
                             "X-Request-Id: 77\r\n"));
  const std::string text("\5\0\0\0 upon", 9);
  ASSERT_TRUE(turn_until(loop, [&] { return raw.has(text); })) << raw.received;
  const std::string json = std::to_string(raw.body().size() - text.size());
  for (const std::string& line :
       {"inference-header-content-length: " + json, std::string("x-request-id: 77"),
        std::string("Content-Type: application/octet-stream")}) {
    EXPECT_NE(raw.head().find(line + "\r\n"), std::string::npos) << line << raw.head();
  }
}

TEST_F(KserveTest, MetadataAndHealthAreItsOwn) {
  serve();
  EXPECT_EQ(exchange("GET", "/v2/health/live", "").status, 200);
  EXPECT_EQ(exchange("GET", "/v2/health/ready", "").status, 200);
  EXPECT_NE(exchange("GET", "/v2", "").body.find(R"("extensions":["binary_tensor_data"])"),
            std::string::npos);
  EXPECT_NE(exchange("GET", "/v2/models/m/versions/1", "").body.find(R"("name":"text_input")"),
            std::string::npos);
  EXPECT_EQ(exchange("GET", "/v2/models/m/ready", "").status, 200);
  workers.clear();
  submit_members();
  EXPECT_EQ(exchange("GET", "/v2/health/live", "").status, 200);
  EXPECT_EQ(exchange("GET", "/v2/health/ready", "").status, 503);
}

TEST_F(KserveTest, ErrorsAreInItsWords) {
  serve();
  const auto said = [](const net::HttpReply& reply, int status, const std::string& error) {
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_TRUE(reply.body.starts_with(R"({"error":")" + error)) << reply.body;
  };
  said(infer("other"), 404, "The model `other` does not exist");
  said(exchange("GET", "/v2/models/m/versions/2", ""), 404, "The model `m` has no version 2");
  said(infer("m", R"(,"parameters":{"stream":true})"), 400, "parameters.stream: cannot be set");
  said(exchange("POST", "/v2/models/m/infer", "{}", "Inference-Header-Content-Length: 5\r\n"), 400,
       "Inference-Header-Content-Length is larger");
  said(exchange("GET", "/v2/models/m/infer", ""), 405, "Method not allowed");
  said(exchange("GET", "/v2/models/m/config", ""), 404, "Invalid URL");
  workers[0]->answer = [](net::HttpServer& server, net::ExchangeId id, const FakeWorker::Heard&) {
    server.reply(id, 400, "application/json", R"({"error":{"message":"too long"}})");
  };
  said(infer(), 400, "too long");
  expect_idle();
}

TEST_F(KserveTest, TheResponseCacheAnswersIt) {
  config.cache.bytes_max = 1 << 20;
  serve();
  const std::string cold = infer("m", R"(,"parameters":{"temperature":0})").body;
  EXPECT_EQ(infer("m", R"(,"parameters":{"temperature":0})").body, cold);
  EXPECT_EQ(workers[0]->heard.size(), 1U);
  EXPECT_NE(cold.find(R"("data":[" upon"])"), std::string::npos) << cold;
}

TEST_F(KserveTest, AsksForTheKeyOfATenant) {
  config.tenants = {{.name = "a", .key_sha256 = sha256_of("secret")}};
  serve();
  const net::HttpReply denied = infer();
  EXPECT_EQ(denied.status, 401);
  EXPECT_TRUE(denied.body.starts_with(R"({"error":")")) << denied.body;
  EXPECT_EQ(exchange("GET", "/v2/models/m", "").status, 401);
  EXPECT_EQ(exchange("GET", "/v2/models/m", "", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(exchange("GET", "/v2/health/live", "").status, 200);
}

}  // namespace
}  // namespace pdjob::router
