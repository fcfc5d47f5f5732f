#include "launcher/dashboard/process_watch.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "net/http/http_server.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {
namespace {

constexpr const char* kLink =
    R"({"peer":"p0.n.1","transport":"shm","direction":"receives","state":"open","transfers":3,"bytes":4096,)"
    R"("transfers_alive":1,"leases":0,"failures":{"link":1,"digest":2},"other":"<b>"})";

TEST(LinksOfAnswer, KeepsTheKnownFields) {
  EXPECT_EQ(
      links_of_answer(std::string(R"({"name":"d0","links":[)") + kLink + "]}"),
      R"([{"peer":"p0.n.1","transport":"shm","direction":"receives","state":"open","transfers":3,"bytes":4096,"transfers_alive":1,"leases":0,"failures":3}])");
  EXPECT_EQ(links_of_answer(R"({"links":[]})"), "[]");
}

TEST(LinksOfAnswer, OfAWorkerThatLiesIsEmptyOrHarmless) {
  EXPECT_EQ(links_of_answer(""), "");
  EXPECT_EQ(links_of_answer("[]"), "");
  EXPECT_EQ(links_of_answer(R"({"links":7})"), "");
  EXPECT_EQ(links_of_answer(R"({"links":[7]})"), "[]");
  EXPECT_EQ(
      links_of_answer(R"({"links":[{"peer":"a\"</script>","bytes":"x","failures":7}]})"),
      R"([{"peer":"a\"</script>","transport":"","direction":"","state":"","transfers":0,"bytes":0,"transfers_alive":0,"leases":0,"failures":0}])");
  std::string many = R"({"links":[)";
  for (int i = 0; i < 2000; ++i) {
    many += std::string(i > 0 ? "," : "") + R"({"peer":")" + std::string(500, 'p') + "\"}";
  }
  EXPECT_LT(links_of_answer(many + "]}").size(), 400'000U);
}

TEST(RequestsOfAnswer, KeepsTheKnownFieldsAndABoundedNumber) {
  EXPECT_EQ(requests_of_answer(""), "");
  EXPECT_EQ(requests_of_answer(R"({"requests":7})"), "");
  EXPECT_EQ(
      requests_of_answer(
          R"({"requests":[{"number":7,"request_id":"req-1","tenant":"a\"<b>","stream":true,"queue_us":5,"kv_us":"x","prompt":"p"}]})"),
      R"([{"request_id":"req-1","tenant":"a\"<b>","prefill":"","decode":"","outcome":"","number":7,"attempts":0,"status":0,"ended_at":0,"queue_us":5,"kv_us":0,"prefill_us":0,"decode_us":0,"stream":true}])");
  std::string many = R"({"requests":[{})";
  for (int i = 0; i < 2000; ++i) {
    many += ",{}";
  }
  EXPECT_LT(requests_of_answer(many + "]}").size(), 40'000U);
}

// A worker that counts how often it is asked, and with which key.
class Worker final : public net::HttpHandler {
 public:
  Worker(net::EventLoop& loop, std::string body)
      : loop_(loop), body_(std::move(body)), server_(*net::HttpServer::open(loop, *this, {})) {}

  void on_request(net::ExchangeId id, net::HttpRequest& request) override {
    ++asked;
    key = request.header("authorization");
    path = request.path;
    server_->reply(id, 200, "application/json", body_);
    loop_.post([this] { loop_.stop(); });
  }
  void on_client_gone(net::ExchangeId /*id*/) override {}
  uint16_t port() const { return server_->port(); }

  int asked = 0;
  std::string key;
  std::string path;

 private:
  net::EventLoop& loop_;
  const std::string body_;
  std::unique_ptr<net::HttpServer> server_;
};

TEST(ProcessWatch, AsksWhenSomebodyLooksAndAnswersWithWhatItHas) {
  net::EventLoop loop;
  Worker worker(loop, std::string(R"({"links":[)") + kLink + "]}");
  std::vector<WatchedProcess> workers = {{.name = "d0",
                                          .engine_id = "d0.n.2",
                                          .address = {.host = "127.0.0.1", .port = worker.port()},
                                          .key = "secret"}};
  ProcessWatch watch(loop, kLinksPage, [&] { return workers; });
  EXPECT_EQ(watch.look(), R"({"workers":[]})");
  EXPECT_EQ(watch.look(), R"({"workers":[]})") << "an answer is under way";
  while (watch.look() == R"({"workers":[]})") {
    loop.post([&] { loop.stop(); });
    loop.run();
  }
  EXPECT_EQ(worker.asked, 1);
  EXPECT_EQ(worker.path, "/pdjob/links");
  EXPECT_EQ(worker.key, "Bearer secret");
  EXPECT_TRUE(watch.look().starts_with(
      R"({"workers":[{"name":"d0","engine_id":"d0.n.2","links":[{"peer":"p0.n.1",)"))
      << watch.look();
  workers.clear();
  EXPECT_EQ(watch.look(), R"({"workers":[]})") << "a worker that left is not shown";
}

}  // namespace
}  // namespace pdjob::launcher
