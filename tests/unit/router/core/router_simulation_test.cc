// The Router core with a model of flaky workers, on virtual time. One seed decides everything, and
// each run is made twice. After every step the invariants hold. Each request ends exactly once, and
// no leg leaks. A request's attempts and the number of requests alive stay within their bounds.
// Only workers of one model, the request's, serve a request.
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "router/core/router.h"

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;

class World {
 public:
  explicit World(uint64_t seed)
      : random_(seed), config_(draw_config(random_)), router_(config_, seed) {}

  // Returns the trace of the run. The caller compares two.
  std::string run() {
    change_membership();
    for (int turn = 0; turn < 400; ++turn) {
      act();
      check();
    }
    settle();
    EXPECT_EQ(router_.requests_alive(), 0U);
    EXPECT_EQ(legs_.size(), 0U);
    EXPECT_EQ(ended_.size(), arrived_);
    for (const auto& [id, worker] : router_.workers().all()) {
      EXPECT_EQ(worker.requests_in_flight, 0U);
      EXPECT_EQ(worker.tokens_in_flight, 0U);
      EXPECT_EQ(worker.prompts_in_flight, 0U);
      EXPECT_EQ(worker.suspects, 0U);
    }
    return trace_.str();
  }

 private:
  static RouterConfig draw_config(Random& random) {
    RouterConfig config;
    config.prefill_policy = static_cast<PolicyKind>(random.below(6));
    config.decode_policy = static_cast<PolicyKind>(random.below(6));
    config.fallback = random.chance(0.5) ? Fallback::kDecodeAlone : Fallback::kRefuse;
    config.attempts = static_cast<uint32_t>(1 + random.below(4));
    config.continuations = static_cast<uint32_t>(random.below(4));
    config.requests_max = static_cast<uint32_t>(1 + random.below(20));
    config.request_timeout = milliseconds(500 + random.below(2000));
    config.queue_timeout = milliseconds(random.below(500));
    config.measured_load = random.chance(0.5);
    config.hedge_quantile = random.chance(0.5) ? 0.5 : 0;
    config.bypass_tokens = static_cast<uint32_t>(random.chance(0.3) ? random.below(500) : 0);
    config.decode_prefills = static_cast<DecodePrefills>(random.chance(0.3) ? random.below(3) : 0);
    config.bypass_busy_requests = static_cast<uint32_t>(random.chance(0.3) ? random.below(5) : 0);
    config.hears_losses = random.chance(0.5);
    if (random.chance(0.3)) {
      config.models = {"m", "n"};
    }
    return config;
  }

  void step(const RouterEvent& event) {
    std::vector<RouterEffect> effects;
    router_.step(event, now_, effects);
    trace_ << event.index() << '@' << now_.time_since_epoch().count();
    for (const RouterEffect& effect : effects) {
      trace_ << ' ' << effect.index();
      std::visit([this](const auto& one) { on(one); }, effect);
    }
    trace_ << '\n';
  }

  void on(const StartLeg& effect) {
    const Worker* worker = router_.workers().find(effect.worker);
    ASSERT_NE(worker, nullptr);
    const std::string& model = worker->entry.model;
    ASSERT_TRUE(named_[effect.leg.request].empty() || named_[effect.leg.request] == model);
    const auto pair = std::pair(effect.leg.request, effect.leg.attempt);
    ASSERT_EQ(models_.try_emplace(pair, model).first->second, model) << "a pair of two models";
    ASSERT_TRUE(!effect.resumes || answered_by_[effect.leg.request] == model);
    ASSERT_FALSE(ended_.contains(effect.leg.request)) << "a leg of a request that has ended";
    // When a reply corrects an address, the decode leg begins anew.
    ASSERT_LE(effect.leg.attempt, 2 * config_.attempts * (config_.continuations + 1));
    ASSERT_TRUE(!relayed_.contains(effect.leg.request) || broken_.contains(effect.leg.request))
        << "a retry of what has begun and did not break off";
    ASSERT_EQ(effect.resumes, relayed_.contains(effect.leg.request));
    ASSERT_TRUE(legs_.try_emplace(effect.leg, false).second);
  }
  void on(const CancelLeg& effect) { ASSERT_EQ(legs_.erase(effect.leg), 1U); }
  void on(const ReleaseOffer& effect) {
    ASSERT_TRUE(released_.insert(effect.transfer).second) << "an offer released twice";
  }
  void on(const Relay& effect) {
    ASSERT_TRUE(relayed_.insert(effect.leg.request).second ||
                broken_.erase(effect.leg.request) == 1);
    ASSERT_TRUE(legs_.contains(effect.leg));
    answered_by_[effect.leg.request] = models_.at({effect.leg.request, effect.leg.attempt});
    ASSERT_FALSE(failure_answered_ && effect.leg.attempt < config_.attempts &&
                 !pinned_.contains(effect.leg.request))
        << "a worker's failure is shown with attempts left";
  }
  void on(const Retried&) {}
  void on(const PairSuspected&) {}
  void on(const Continued& effect) {
    ASSERT_TRUE(relayed_.contains(effect.id) && broken_.insert(effect.id).second);
  }
  void on(const OutOfRetries&) {}
  void on(const Hedged&) { ASSERT_GT(config_.hedge_quantile, 0); }
  void on(const TakeOff& effect) { ASSERT_TRUE(legs_.contains(effect.leg)); }
  void on(const AbortRunning&) {}
  void on(const WorkerAvoided& effect) { ASSERT_GT(effect.status, 0); }
  void on(const Quiet&) { ASSERT_TRUE(router_.closed() && router_.requests_running() == 0); }
  void on(const LearnTokens&) { FAIL() << "nobody is listened to"; }
  void on(const Degraded&) { ASSERT_EQ(config_.fallback, Fallback::kDecodeAlone); }
  void on(const Bypassed& effect) {
    ASSERT_TRUE(effect.reason == BypassReason::kShort ? config_.bypass_tokens > 0
                : effect.reason == BypassReason::kWaits
                    ? config_.decode_prefills == DecodePrefills::kWaiting ||
                          config_.decode_prefills == DecodePrefills::kEven
                : effect.reason == BypassReason::kPromptOnly ? prompt_only_.contains(effect.id)
                                                             : config_.bypass_busy_requests > 0);
  }
  void on(const Complete& effect) {
    ASSERT_TRUE(relayed_.contains(effect.id));
    end(effect.id);
  }
  void on(const Refuse& effect) {
    ASSERT_FALSE(relayed_.contains(effect.id));
    end(effect.id);
  }
  void on(const Abort& effect) {
    ASSERT_TRUE(relayed_.contains(effect.id));
    end(effect.id);
  }
  void on(const Forget& effect) { end(effect.id); }
  void on(const Drained&) {}
  void on(const Blamed& effect) { ASSERT_TRUE(config_.hears_losses && effect.losses > 1); }
  void end(RequestId id) {
    ASSERT_TRUE(ended_.insert(id).second) << "a request ended twice: " << id;
  }

  void act() {
    const uint64_t draw = random_.below(100);
    if (draw < 30) {
      arrive();
    } else if (draw < 80) {
      advance_leg();
    } else if (draw < 84) {
      change_membership();
    } else if (draw < 87) {
      step(ClientLeft{RequestId{1 + random_.below(arrived_ + 1)}});
    } else if (draw < 90) {
      step(WorkerProbed{.name = "w" + std::to_string(random_.below(6)),
                        .reachable = random_.chance(0.5),
                        .silent = random_.chance(0.2)});
    } else {
      now_ += milliseconds(random_.below(120));
      step(TimePassed{});
    }
  }

  void arrive() {
    RequestFacts facts;
    facts.hands_over = random_.chance(0.9);
    if (!facts.hands_over && random_.chance(0.5)) {
      facts.prompt_only = true;
      prompt_only_.insert(RequestId{arrived_ + 1});
    }
    facts.prompt_tokens = random_.below(1000);
    facts.output_tokens = random_.below(100);
    static constexpr const char* kModels[] = {"m", "n", "m", "n", "", "other"};
    facts.model = kModels[random_.below(std::size(kModels))];
    if (random_.chance(0.05)) {
      facts.pin_decode = "w" + std::to_string(random_.below(6));
      pinned_.insert(RequestId{arrived_ + 1});
    }
    if (random_.chance(0.02)) {
      facts.pin_prefill = "w" + std::to_string(random_.below(4));
      pinned_.insert(RequestId{arrived_ + 1});
    }
    named_[RequestId{arrived_ + 1}] = facts.model;
    step(RequestArrived{RequestId{++arrived_}, facts});
  }

  // A running leg answers, ends or fails. Now and then a late event arrives for a leg that has
  // ended.
  void advance_leg() {
    if (legs_.empty() || random_.chance(0.05)) {
      const LegId late{RequestId{1 + random_.below(arrived_ + 1)}, 99, Stage::kDecode};
      step(LegFailed{late, {ErrorCode::kUnavailable, "late"}});
      return;
    }
    auto leg = std::next(legs_.begin(), static_cast<ptrdiff_t>(random_.below(legs_.size())));
    const LegId id = leg->first;
    if (random_.chance(0.2)) {
      legs_.erase(leg);
      step(LegFailed{id, {ErrorCode::kUnavailable, "broken"}, random_.chance(0.7)});
    } else if (!leg->second) {
      leg->second = true;
      static constexpr int kStatuses[] = {200, 200, 200, 200, 400, 429, 500, 502, 503};
      const int status = kStatuses[random_.below(std::size(kStatuses))];
      const bool retry_after = random_.chance(0.5);
      failure_answered_ = status >= 500 && !(status == 503 && retry_after);
      step(LegAnswered{id, status, retry_after});
      failure_answered_ = false;
    } else {
      legs_.erase(leg);
      static constexpr const char* kAddresses[] = {"", "a", "a", "a", "b"};
      const bool kv_params = random_.chance(0.8);
      step(LegEnded{id, kv_params,
                    kv_params ? kAddresses[random_.below(std::size(kAddresses))] : ""});
    }
  }

  void change_membership() {
    std::vector<net::WorkerEntry> entries;
    for (int i = 0; i < 8; ++i) {
      if (random_.chance(0.3)) {
        continue;
      }
      static constexpr net::Role kRoles[] = {
          net::Role::kPrefill, net::Role::kPrefill, net::Role::kDecode,  net::Role::kDecode,
          net::Role::kDecode,  net::Role::kBoth,    net::Role::kPrefill, net::Role::kDecode};
      incarnation_ += random_.chance(0.2) ? 1 : 0;
      entries.push_back({.name = "w" + std::to_string(i),
                         .engine_id = std::to_string(incarnation_),
                         .role = kRoles[i],
                         .host = "h",
                         .port = 1,
                         .model = i < 6 ? "m" : "n",
                         .kv_address = i == 0 ? "" : "{}"});
    }
    std::vector<net::Departure> left;
    for (const net::WorkerEntry& entry : std::exchange(members_, entries)) {
      if (random_.chance(0.7)) {
        left.push_back({.name = entry.name,
                        .engine_id = entry.engine_id,
                        .cause = static_cast<net::LossCause>(random_.below(4))});
      }
    }
    step(WorkersChanged{entries, left});
  }

  void check() {
    ASSERT_LE(router_.requests_alive(), config_.requests_max);
    ASSERT_LE(legs_.size(), (config_.hedge_quantile > 0 ? 4 : 2) * router_.requests_alive());
    ASSERT_EQ(router_.next_wakeup() == kNever, router_.requests_alive() == 0);
  }

  // Requests stop arriving and time runs on: everything must end.
  void settle() {
    for (int i = 0; i < 100 && router_.next_wakeup() != kNever; ++i) {
      now_ = std::max(now_, router_.next_wakeup()) + config_.request_timeout;
      step(TimePassed{});
    }
  }

  Random random_;
  RouterConfig config_;
  Router router_;
  Instant now_{std::chrono::hours(1)};
  uint64_t arrived_ = 0;
  uint64_t incarnation_ = 1;
  std::vector<net::WorkerEntry> members_;
  std::map<LegId, bool> legs_;     // Running legs, and whether they have answered.
  bool failure_answered_ = false;  // True while the current step is a worker's own failure.
  std::set<RequestId> pinned_;
  std::set<RequestId> prompt_only_;
  std::map<RequestId, std::string> named_;  // The model that the client named.
  // The model of each attempt's legs.
  std::map<std::pair<RequestId, uint32_t>, std::string> models_;
  std::map<RequestId, std::string> answered_by_;
  std::set<RequestId> relayed_;
  std::set<RequestId> broken_;  // Relayed, and to be continued at another worker.
  std::set<TransferId> released_;
  std::set<RequestId> ended_;
  std::ostringstream trace_;
};

TEST(RouterSimulation, EndsEachRequestExactlyOnceWhateverWorkersDo) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string trace = World(seed).run();
    if (testing::Test::HasFailure()) {
      return;
    }
    if (seed % 10 == 0) {
      ASSERT_EQ(World(seed).run(), trace);
    }
  }
}

}  // namespace
}  // namespace pdjob::router
