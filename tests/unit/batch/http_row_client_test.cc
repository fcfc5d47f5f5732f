#include "batch/http_row_client.h"

#include <gtest/gtest.h>

#include "net/http/http_server.h"
#include "net/loop/event_loop.h"

namespace pdjob::batch {
namespace {

TEST(HttpRowClient, AServerThatIsNotThereIsUnreachable) {
  net::EventLoop loop;
  RowServer server = parse_row_server("http://127.0.0.1:1").value();
  HttpRowClient client(loop, server);
  RowResult result;
  client.start({.id = {1}, .target = "/v1/completions", .request_id = "r", .body = "{}"},
               [&](AttemptId, RowResult ended) {
                 result = std::move(ended);
                 loop.stop();
               });
  loop.run();
  EXPECT_EQ(result.outcome, Outcome::kUnreachable);
  EXPECT_EQ(result.cause, "connection");
}

// Replies as `status` and `body` say, and remembers what it was asked.
class FakeServer final : net::HttpHandler {
 public:
  explicit FakeServer(net::Loop& loop) : server_(net::HttpServer::open(loop, *this, {}).value()) {}

  RowServer address() const {
    return parse_row_server("127.0.0.1:" + std::to_string(server_->port()) + "/v1").value();
  }

  int status = 200;
  std::string body = R"({"x":1})";
  std::vector<std::pair<std::string, std::string>> headers;
  bool hangs = false;
  bool breaks = false;
  std::string asked;
  std::string tells;  // In an interim response.
  std::string progress;
  bool is_confused = false;  // As older versions of nginx, if the program behind it tells tokens.

 private:
  void on_request(net::ExchangeId id, net::HttpRequest& request) override {
    progress = request.header("x-pdjob-progress");
    if (is_confused && !progress.empty()) {
      server_->begin_raw(id, "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n");
      server_->write_raw(id, "13\r\nHTTP/1.1 200 OK\r\n\r\n\r\n0\r\n\r\n");
      server_->end_raw(id, false);
      return;
    }
    if (!tells.empty()) {
      server_->interim(id, tells);
    }
    asked = std::string(request.path) + " " + std::string(request.header("x-request-id")) + " " +
            std::string(request.header("authorization")) + " " + request.body;
    if (breaks) {
      server_->begin(id, 200, "application/json");
      server_->write(id, "{");
      server_->abort(id);
    } else if (!hangs) {
      server_->reply(id, status, "application/json", body, headers);
    }
  }
  void on_client_gone(net::ExchangeId /*id*/) override {}

  const std::unique_ptr<net::HttpServer> server_;
};

class HttpRowClientTest : public testing::Test {
 protected:
  RowResult ask() {
    RowServer address = server_.address();
    address.key = "secret";
    address.row_timeout = timeout_;
    HttpRowClient client(loop_, address);
    RowResult result;
    client.start({.id = {1}, .target = "/v1/completions", .request_id = "r1", .body = "{}"},
                 [&](AttemptId, RowResult ended) {
                   result = std::move(ended);
                   loop_.stop();
                 });
    loop_.run();
    return result;
  }

  net::EventLoop loop_;
  FakeServer server_{loop_};
  Duration timeout_ = std::chrono::seconds(60);
};

TEST_F(HttpRowClientTest, SendsARowAndTakesItsReply) {
  const RowResult result = ask();
  EXPECT_EQ(server_.asked, "/v1/completions r1 Bearer secret {}");
  EXPECT_EQ(result.outcome, Outcome::kAnswered);
  EXPECT_EQ(result.body, R"({"x":1})");
  EXPECT_EQ(result.request_id, "r1");
}

TEST_F(HttpRowClientTest, HearsWhatTheServerTellsBeforeItReplies) {
  server_.tells = "x-pdjob-tokens: 0@0.5.6\r\n";
  HttpRowClient client(loop_, server_.address());
  std::string told;
  client.on_told([&](AttemptId attempt, std::string_view note) {
    told += std::to_string(attempt.value) + ":" + std::string(note);
  });
  RowResult result;
  client.start({.id = {7},
                .target = "/v1/completions",
                .request_id = "r",
                .body = "{}",
                .goes_on = {.tokens = "[[1]]", .model = R"("ab")"},
                .tell_every = 16},
               [&](AttemptId, RowResult ended) {
                 result = std::move(ended);
                 loop_.stop();
               });
  loop_.run();
  EXPECT_EQ(server_.progress, "16");
  EXPECT_EQ(told, "7:0@0.5.6");
  EXPECT_EQ(result.body, R"({"x":1})");
  EXPECT_TRUE(server_.asked.ends_with(R"({"pdjob_resume":[[1]],"pdjob_resume_model":"ab"})"))
      << server_.asked;
  ask();
  EXPECT_EQ(server_.progress, "") << "nobody listens";
}

TEST_F(HttpRowClientTest, AProxyThatTakesAnInterimResponseForTheReplyIsNotAskedForTokensAgain) {
  server_.is_confused = true;
  HttpRowClient client(loop_, server_.address());
  client.on_told([](AttemptId, std::string_view) {});
  const auto ask = [&](uint64_t attempt) {
    RowResult result;
    client.start({.id = {attempt}, .target = "/v1/completions", .body = "{}", .tell_every = 16},
                 [&](AttemptId, RowResult ended) {
                   result = std::move(ended);
                   loop_.stop();
                 });
    loop_.run();
    return result.outcome;
  };
  EXPECT_EQ(ask(1), Outcome::kLost);
  EXPECT_EQ(ask(2), Outcome::kAnswered);
  EXPECT_EQ(server_.progress, "");
}

TEST_F(HttpRowClientTest, ABusyServerSaysWhenToComeAgain) {
  server_.status = 503;
  server_.headers = {{"Retry-After", "7"}};
  const RowResult result = ask();
  EXPECT_EQ(result.outcome, Outcome::kBusy);
  EXPECT_EQ(result.retry_after, std::chrono::seconds(7));
  EXPECT_EQ(result.cause, "http_503");
}

TEST_F(HttpRowClientTest, AnAnswerThatIsNotJsonIsNone) {
  server_.body = "<html>";
  const RowResult result = ask();
  EXPECT_EQ(result.outcome, Outcome::kBroken);
  EXPECT_EQ(result.cause, "bad_reply");
}

TEST_F(HttpRowClientTest, ABrokenConnectionIsLostAndASlowServerTimesOut) {
  server_.breaks = true;
  EXPECT_EQ(ask().outcome, Outcome::kLost);
  server_.breaks = false;
  server_.hangs = true;
  timeout_ = std::chrono::milliseconds(50);
  const RowResult result = ask();
  EXPECT_EQ(result.outcome, Outcome::kBroken);
  EXPECT_EQ(result.cause, "timeout");
}

TEST_F(HttpRowClientTest, CountsWorkersThatServe) {
  server_.body = R"({"workers":[{"standing":"serving"},{"standing":"leaving"},)"
                 R"({"standing":"serving"}]})";
  HttpRowClient client(loop_, server_.address());
  size_t counted = 0;
  client.count_workers([&](size_t workers) {
    counted = workers;
    loop_.stop();
  });
  loop_.run();
  EXPECT_EQ(counted, 2U);
}

}  // namespace
}  // namespace pdjob::batch
