// Workers whose KV and tokens mean different things, as while a job changes its model.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/router/core/router_fixture.h"

namespace pdjob::router {
namespace {

net::WorkerEntry of_file(const std::string& name, net::Role role, const std::string& fingerprint) {
  net::WorkerEntry worker = entry(name, role);
  worker.fingerprint = fingerprint;
  return worker;
}

struct FingerprintTest : RouterTest {
  net::WorkerEntry p_old = of_file("p-old", net::Role::kPrefill, "old");
  net::WorkerEntry d_old = of_file("d-old", net::Role::kDecode, "old");
  net::WorkerEntry p_new = of_file("p-new", net::Role::kPrefill, "new");
  net::WorkerEntry d_new = of_file("d-new", net::Role::kDecode, "new");

  // The request's stream breaks off.
  Words breaks(uint32_t attempt = 1) {
    return step(LegFailed{leg(Stage::kDecode, attempt), {ErrorCode::kUnavailable, "x"}, true});
  }
};

TEST_F(FingerprintTest, OnlyWorkersWithTheSameOneArePaired) {
  workers({p_old, p_new, d_old, d_new});
  std::set<std::string> pairs;
  for (uint64_t i = 0; i < 8; ++i) {
    for (const std::string& word :
         step(RequestArrived{RequestId{100 + i}, {.prompt_tokens = 10, .output_tokens = 10}})) {
      pairs.insert(word);
    }
  }
  EXPECT_EQ(pairs, (std::set<std::string>{"prefill#1@p-old offer", "decode#1@d-old fetch",
                                          "prefill#1@p-new offer", "decode#1@d-new fetch"}));
  for (size_t i = 0; i < starts.size(); i += 2) {
    EXPECT_EQ(router().workers().find(starts[i].worker)->entry.fingerprint,
              router().workers().find(starts[i + 1].worker)->entry.fingerprint);
  }
}

TEST_F(FingerprintTest, ADecodeWorkerWithoutAPrefillWorkerIsTheLastChoice) {
  config.fallback = Fallback::kRefuse;
  workers({p_old, d_old, d_new});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(arrive(), (Words{"prefill#1@p-old offer", "decode#1@d-old fetch"}));
    step(ClientLeft{kRequest});
  }
  workers({p_old, d_new});
  EXPECT_EQ(arrive(), Words{});
  EXPECT_FALSE(router().usable());
  EXPECT_EQ(workers({p_old, p_new, d_new}),
            (Words{"prefill#1@p-new offer", "decode#1@d-new fetch"}));
}

TEST_F(FingerprintTest, ADecodeWorkerWithoutAPrefillWorkerPrefillsByItselfIfItMay) {
  workers({p_old, d_new});
  EXPECT_EQ(arrive(), (Words{"degraded", "decode#1@d-new"}));
}

// Requests of a large fleet, all under way at once; how many each worker has.
struct LargeFleetTest : RouterTest {
  std::vector<uint32_t> requests_at(size_t fleet, size_t requests) {
    std::vector<net::WorkerEntry> entries;
    for (size_t i = 0; i < fleet; ++i) {
      entries.push_back(entry("b" + std::to_string(i), net::Role::kBoth));
    }
    workers(entries);
    for (size_t i = 0; i < requests; ++i) {
      step(RequestArrived{RequestId{1000 + i}, {.prompt_tokens = 10, .output_tokens = 10}});
    }
    std::vector<uint32_t> found;
    for (const auto& [id, worker] : router().workers().all()) {
      found.push_back(worker.requests_in_flight);
    }
    return found;
  }
};

TEST_F(LargeFleetTest, TheLeastLoadedOfSomeIsHardlyMoreLoadedThanOfAll) {
  config.requests_max = 10000;
  const std::vector<uint32_t> found = requests_at(1000, 5000);
  EXPECT_GE(std::ranges::min(found), 3U);
  EXPECT_LE(std::ranges::max(found), 6U);
}

TEST_F(LargeFleetTest, TheOnlyOneWithRoomIsFound) {
  config.requests_max = 10000;
  config.decode_in_flight = 1;
  const std::vector<uint32_t> found = requests_at(300, 300);
  EXPECT_EQ(std::ranges::min(found), 1U);
}

// SGLang's decode engines refuse a request without a bootstrap room.
TEST_F(RouterTest, ADecodeWorkerOfSglangGetsNoRequestWithoutAPrefillWorker) {
  net::WorkerEntry prefill = entry("p0", net::Role::kPrefill);
  net::WorkerEntry decode = entry("d0", net::Role::kDecode);
  prefill.protocol = decode.protocol = net::Protocol::kSglang;
  config.bypass_tokens = 1000;
  config.decode_prefills = DecodePrefills::kEven;
  workers({decode});
  EXPECT_FALSE(router().usable());
  EXPECT_EQ(arrive(), Words{});
  EXPECT_EQ(workers({prefill, decode}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(FingerprintTest, AStreamGoesOnOnlyWhereItsTokensMeanTheSame) {
  workers({p_old, d_old});
  arrive();
  answered(Stage::kDecode, 200);
  ended(Stage::kPrefill);
  workers({p_new, d_new});
  EXPECT_EQ(breaks(), Words{"continued"});
  EXPECT_EQ(workers({p_new, d_new, p_old, of_file("d-2", net::Role::kDecode, "old")}),
            (Words{"prefill#2@p-old offer", "decode#2@d-2 fetch resume"}));
}

TEST_F(FingerprintTest, AStreamThatNobodyCanGoOnWithBreaksOffAfterItsTimeInTheQueue) {
  workers({p_old, d_old});
  arrive();
  answered(Stage::kDecode, 200);
  ended(Stage::kPrefill);
  workers({p_new, d_new});
  EXPECT_EQ(breaks(), Words{"continued"});
  EXPECT_EQ(sleep(config.queue_timeout), Words{"abort"});
  expect_idle();
}

TEST_F(FingerprintTest, ARequestWithoutAReplyMayBeServedByOthers) {
  workers({p_old, d_old});
  arrive();
  EXPECT_EQ(workers({p_new, d_new}),
            (Words{"cancel prefill#1", "cancel decode#1", "retry worker_left",
                   "prefill#2@p-new offer", "decode#2@d-new fetch"}));
}

TEST_F(FingerprintTest, AReplyWhoseWorkerHasLeftIsStillThatWorkers) {
  workers({p_old, d_old});
  arrive();
  answered(Stage::kDecode, 200);
  ended(Stage::kPrefill);
  workers({p_old, of_file("d-2", net::Role::kDecode, "old")});
  EXPECT_EQ(breaks(), (Words{"continued", "prefill#2@p-old offer", "decode#2@d-2 fetch resume"}));
  answered(Stage::kDecode, 200, 2);
  ended(Stage::kPrefill, 2);
  workers({p_new, d_new});
  EXPECT_EQ(breaks(2), Words{"continued"}) << "it waits for one like the first";
}

TEST_F(FingerprintTest, PinsThatCannotHandOverAreRefused) {
  workers({p_old, p_new, d_old, d_new});
  EXPECT_EQ(arrive({.pin_prefill = "p-old", .pin_decode = "d-new"}), Words{"refuse 503"});
  EXPECT_EQ(arrive({.pin_prefill = "p-new"}),
            (Words{"prefill#1@p-new offer", "decode#1@d-new fetch"}));
}

TEST_F(RouterTest, LimitsChangeWhileItRuns) {
  config.queue_timeout = seconds(30);
  EXPECT_EQ(arrive(), Words{});
  RouterConfig changed = config;
  changed.queue_timeout = seconds(1);
  changed.queue_max = 1;
  changed.prefill_policy = PolicyKind::kRandom;  // It stays as it is.
  step(ConfigChanged{changed});
  EXPECT_EQ(router().queue_max(), 1U);
  EXPECT_EQ(step(RequestArrived{RequestId{8}, {}}), Words{"refuse 503"});
  EXPECT_EQ(sleep(seconds(2)), Words{}) << "it came before";
  EXPECT_EQ(sleep(seconds(28)), Words{"refuse 503"});
  EXPECT_EQ(arrive(), Words{});
  EXPECT_EQ(sleep(seconds(1)), Words{"refuse 503"});
}

// --- routes that pdjob does not know

net::WorkerEntry with_routes(const std::string& name, net::Role role,
                             std::vector<std::string> routes) {
  net::WorkerEntry worker = entry(name, role, "");
  worker.routes = std::move(routes);
  return worker;
}

struct RouteTest : RouterTest {
  RouteTest() {
    workers({with_routes("p0", net::Role::kPrefill, {"/v1/rerank"}),
             with_routes("d0", net::Role::kDecode, {"/v1/rerank", "/v1/messages"}),
             with_routes("d1", net::Role::kDecode, {})});
  }
  Words arrive_at(const std::string& route) {
    return arrive({.route = route, .hands_over = false});
  }
};

TEST_F(RouteTest, GoToOneWorkerThatHasThem) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(arrive_at("/v1/messages"), Words{"decode#1@d0"});
    answered(Stage::kDecode, 200);
    ended(Stage::kDecode);
  }
  expect_idle();
}

TEST_F(RouteTest, GoToAPrefillWorkerThatHasThem) {
  EXPECT_EQ(arrive_at("/v1/rerank"), (Words{"bypass", "decode#1@p0"}));
  EXPECT_EQ(failed(Stage::kDecode), (Words{"retry unreachable", "decode#2@d0"}));
  EXPECT_EQ(answered(Stage::kDecode, 200, 2), Words{"relay decode#2"});
}

TEST_F(RouteTest, ARefusalOfAPrefillWorkerIsPassedOn) {
  arrive_at("/v1/rerank");
  EXPECT_EQ(answered(Stage::kDecode, 400), Words{"relay decode#1"});
}

TEST_F(RouteTest, AnEngineThatLacksARouteAfterAllIsNotAvoided) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(arrive_at("/v1/messages"), Words{"decode#1@d0"});
    EXPECT_EQ(answered(Stage::kDecode, 404), Words{"relay decode#1"});
    ended(Stage::kDecode);
  }
  EXPECT_EQ(router().workers().find("d0")->failures, 0U);
}

TEST_F(RouteTest, NobodysRouteIsNotFoundAndAnAbsentWorkersIsWaitedFor) {
  EXPECT_EQ(arrive_at("/v1/score"), Words{"refuse 404"});
  EXPECT_EQ(refusal.error.message, "No worker of this model serves POST /v1/score.");
  workers({with_routes("d1", net::Role::kDecode, {})});
  EXPECT_EQ(arrive_at("/v1/messages"), Words{});
  EXPECT_EQ(workers({with_routes("d2", net::Role::kDecode, {"/v1/messages"})}),
            Words{"decode#1@d2"});
}

// --- adapters

struct AdapterTest : RouterTest {
  static net::WorkerEntry with_adapters(const std::string& name, net::Role role,
                                        std::vector<std::string> adapters) {
    net::WorkerEntry worker = entry(name, role);
    worker.adapters = std::move(adapters);
    return worker;
  }
  AdapterTest() {
    workers({with_adapters("p0", net::Role::kPrefill, {}),
             with_adapters("p1", net::Role::kPrefill, {"sql"}),
             with_adapters("d0", net::Role::kDecode, {}),
             with_adapters("d1", net::Role::kDecode, {"sql"})});
  }
};

TEST_F(AdapterTest, BothWorkersOfAPairHaveIt) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(arrive({.model = "sql"}), (Words{"prefill#1@p1 offer", "decode#1@d1 fetch"}));
    step(ClientLeft{kRequest});
  }
  EXPECT_EQ(arrive({.model = "tone"}), Words{"refuse 404"});
}

TEST_F(AdapterTest, IsNotPrefilledWhereItIsNot) {
  workers({with_adapters("p0", net::Role::kPrefill, {}),
           with_adapters("d1", net::Role::kDecode, {"sql"})});
  EXPECT_EQ(arrive({.model = "sql"}), (Words{"degraded", "decode#1@d1"}));
}

TEST_F(AdapterTest, IsServedAsSoonAsItIsLoaded) {
  for (const char* name : {"p0", "d0"}) {
    step(AdapterChanged{router().workers().find(name)->id, "tone", true});
  }
  EXPECT_EQ(arrive({.model = "tone"}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  step(ClientLeft{kRequest});
  step(AdapterChanged{router().workers().find("d0")->id, "tone", false});
  EXPECT_EQ(router().models(), std::set<std::string>{"m"});
}

TEST_F(AdapterTest, AWorkerThatLostItIsNotAvoided) {
  config.attempts = 1;
  for (int i = 0; i < 4; ++i) {
    arrive({.model = "sql"});
    answered(Stage::kDecode, 404);
    step(ClientLeft{kRequest});
  }
  EXPECT_EQ(router().workers().find("d1")->failures, 0U);
}

}  // namespace
}  // namespace pdjob::router
