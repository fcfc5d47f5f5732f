// The router as a member of its job, over real sockets. The test speaks for the launcher.
#include "router/router_member.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/net/loop_test_support.h"

namespace pdjob::router {
namespace {

using net::run_until;

constexpr std::string_view kQuiet = R"({"model":"m","prompt":"a quiet prompt","max_tokens":3})";
constexpr std::string_view kKiller = R"({"model":"m","prompt":"crash","max_tokens":3})";

// Answers all requests but the killer.
struct FakeWorker {
  FakeWorker(net::EventLoop& loop, std::string own_name) : name(std::move(own_name)) {
    handler.answer = [this](net::ExchangeId id, net::HttpRequest& request) {
      if (request.body.find("crash") != std::string::npos) {
        has_killer = true;
      } else {
        server->reply(id, 200, "application/json", R"({"choices":[{"text":" upon"}]})");
      }
    };
    server = std::move(*net::HttpServer::open(loop, handler, {}));
    port = server->port();
  }
  net::WorkerEntry entry() const {
    return {.name = name,
            .engine_id = name + ".1",
            .role = net::Role::kBoth,
            .host = "127.0.0.1",
            .port = port,
            .model = "m",
            .kv_address = kv_address};
  }
  void crash() { server.reset(); }

  std::string name;
  std::string kv_address = R"({"remote_host_id":"here"})";
  net::LambdaHandler handler;
  std::unique_ptr<net::HttpServer> server;
  uint16_t port = 0;
  bool has_killer = false;
};

struct RouterMemberTest : testing::Test {
  RouterMemberTest() {
    config.hears_losses = true;
    api = std::move(
        *HttpApi::open(loop, net::outbound_clients(loop), config, {.accepts_later = true}, [] {}));
    member = std::make_unique<RouterMember>(loop, *api, [] {});
    launcher = member.get();
    member->serve(
        std::make_unique<net::JobMember>(loop, *member, "router-0", std::chrono::seconds(1)),
        {.name = "router-0", .engine_id = "router-0.1", .role = net::Role::kRouter});
  }

  void tell(const std::vector<const FakeWorker*>& workers,
            const std::vector<net::Departure>& left = {}) {
    net::Membership told{.version = ++version, .stores = stores, .left = left};
    for (const FakeWorker* worker : workers) {
      told.workers.push_back(worker->entry());
    }
    launcher->on_control(told);
  }
  std::unique_ptr<net::RawClient> ask(std::string_view body) {
    auto client = std::make_unique<net::RawClient>(loop, api->server().port());
    client->send("POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
    return client;
  }

  net::EventLoop loop;
  RouterConfig config;
  std::unique_ptr<HttpApi> api;
  std::unique_ptr<RouterMember> member;
  net::JobMember::Handler* launcher = nullptr;
  uint64_t version = 0;
  std::vector<net::WorkerEntry> stores;
};

// The end of its pooled connection made the router connect again, and the report on the crash came
// before that had failed. So the request had no part in the crash, and killed a third worker.
TEST_F(RouterMemberTest, BlamesAKillerThoughTheCrashIsToldWhileItsCallConnectsAgain) {
  FakeWorker first(loop, "a");
  FakeWorker second(loop, "b");
  tell({&first});
  ASSERT_TRUE(ask(kQuiet)->wait_for("200 OK"));
  const auto killer = ask(kKiller);
  ASSERT_TRUE(run_until(loop, [&] { return first.has_killer; }));

  tell({&second}, {{.name = "a", .engine_id = "a.1", .cause = net::LossCause::kCrash}});
  first.crash();
  // This process then has no CPU for a while: one turn reads the end, and the report's time is up.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(run_until(loop, [&] { return second.has_killer; }));

  second.crash();
  tell({}, {{.name = "b", .engine_id = "b.1", .cause = net::LossCause::kCrash}});
  ASSERT_TRUE(killer->wait_for("request_kills_workers")) << killer->received();
}

TEST_F(RouterMemberTest, TellsWorkersOfTheStoreOnTheirMachineUntilItLeaves) {
  FakeWorker worker(loop, "a");
  stores = {{.name = "store-0",
             .engine_id = "store-0.1",
             .role = net::Role::kStore,
             .kv_address = R"({"remote_host_id":"here"})"}};
  tell({&worker});
  const Router& core = api->relay().core();
  const auto address = [&] { return core.stores().address(core.workers().find("a")->store); };
  EXPECT_EQ(address(), R"({"remote_host_id":"here"})");
  stores.clear();
  tell({&worker}, {{.name = "store-0", .engine_id = "store-0.1"}});
  EXPECT_EQ(address(), "");
}

TEST_F(RouterMemberTest, TakesChangedSettingsOverAndKeepsTheOldOnesIfItCannotReadThem) {
  member->on_work([](const std::string& work) -> Result<RouterConfig> {
    RouterConfig changed;
    if (work == "broken") {
      return Error{ErrorCode::kInvalidArgument, "no settings"};
    }
    changed.queue_max = 5;
    return changed;
  });
  launcher->on_control(net::SpecAsked{.digest = "d1", .work = "broken"});
  EXPECT_EQ(api->relay().core().queue_max(), RouterConfig().queue_max);
  launcher->on_control(net::SpecAsked{.digest = "d2", .work = "five"});
  EXPECT_EQ(api->relay().core().queue_max(), 5U);
}

}  // namespace
}  // namespace pdjob::router
