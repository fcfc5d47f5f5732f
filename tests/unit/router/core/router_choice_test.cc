// Workers whose KV and tokens mean different things, as while a job changes its model.
#include <set>
#include <string>

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

}  // namespace
}  // namespace pdjob::router
