// RouterTest: a router core and its clock. Effects are short words, so that a test reads as a
// story.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "router/core/router.h"

namespace pdjob::router {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline net::WorkerEntry entry(const std::string& name, net::Role role,
                              const std::string& kv_address = "{}") {
  return {.name = name,
          .engine_id = "e1",
          .role = role,
          .host = "h",
          .port = 1,
          .model = "m",
          .kv_address = kv_address};
}

inline constexpr RequestId kRequest{7};

// Effects as short words, so that a test reads as a story.
inline std::string word(const LegId& leg) {
  return std::string(leg.stage == Stage::kPrefill ? "prefill" : "decode") + "#" +
         std::to_string(leg.attempt);
}

struct RouterTest : testing::Test {
  RouterTest() { config.attempts = 3; }

  Router& router() {
    if (!made) {
      made = std::make_unique<Router>(config, 1);
    }
    return *made;
  }

  std::string word_of(const RouterEffect& effect) {
    if (const auto* start = std::get_if<StartLeg>(&effect)) {
      static constexpr const char* kKv[] = {"", " offer", " offer?", " fetch", " fetch?"};
      starts.push_back(*start);
      return word(start->leg) + "@" + router().workers().find(start->worker)->entry.name +
             kKv[static_cast<int>(start->kv)] +
             (start->resumes && start->leg.stage == Stage::kDecode ? " resume" : "");
    }
    if (const auto* cancel = std::get_if<CancelLeg>(&effect)) {
      return "cancel " + word(cancel->leg);
    }
    if (const auto* release = std::get_if<ReleaseOffer>(&effect)) {
      const auto started = std::find_if(starts.begin(), starts.end(), [&](const StartLeg& start) {
        return start.transfer == release->transfer && start.worker == release->worker;
      });
      EXPECT_NE(started, starts.end()) << "a transfer that this worker was never told of";
      return "release @" + router().workers().find(release->worker)->entry.name;
    }
    if (const auto* relay = std::get_if<Relay>(&effect)) {
      return "relay " + word(relay->leg);
    }
    if (const auto* retried = std::get_if<Retried>(&effect)) {
      return std::string("retry ") + to_string(retried->reason);
    }
    if (const auto* refuse = std::get_if<Refuse>(&effect)) {
      refusal = *refuse;
      return "refuse " + std::to_string(refuse->error.status);
    }
    static constexpr const char* kWords[] = {
        "",         "",         "",          "",         "",
        "degraded", "complete", "",          "abort",    "forget",
        "drained",  "suspect",  "continued", "bypass",   "out of retries",
        "hedge",    "learn",    "blame",     "take off", "abort running",
        "quiet",    "avoid"};
    return kWords[effect.index()];
  }

  using Words = std::vector<std::string>;
  Words step(const RouterEvent& event) {
    std::vector<RouterEffect> effects;
    router().step(event, now, effects);
    Words words;
    for (const RouterEffect& effect : effects) {
      words.push_back(word_of(effect));
    }
    return words;
  }

  Words workers(const std::vector<net::WorkerEntry>& all) { return step(WorkersChanged{all}); }
  Words arrive(RequestFacts facts = {}) { return step(RequestArrived{kRequest, std::move(facts)}); }
  static LegId leg(Stage stage, uint32_t attempt = 1) { return {kRequest, attempt, stage}; }
  Words answered(Stage stage, int status, uint32_t attempt = 1, bool retry_after = false) {
    return step(LegAnswered{leg(stage, attempt), status, retry_after});
  }
  Words refused_for_clients_key(Stage stage, int status, uint32_t attempt = 1) {
    return step(LegAnswered{.leg = leg(stage, attempt), .status = status, .clients_key = true});
  }
  Words suspected(uint32_t attempt = 1) {
    return step(
        LegAnswered{.leg = leg(Stage::kDecode, attempt), .status = 502, .kv_suspect = true});
  }
  Words ended(Stage stage, uint32_t attempt = 1, bool kv_params = false) {
    return step(LegEnded{leg(stage, attempt), kv_params});
  }
  Words prefilled_at(const std::string& kv_address, uint32_t attempt = 1) {
    return step(LegEnded{leg(Stage::kPrefill, attempt), true, kv_address});
  }
  Words failed(Stage stage, uint32_t attempt = 1) {
    return step(LegFailed{leg(stage, attempt), {ErrorCode::kUnavailable, "refused"}});
  }
  Words unreached(Stage stage, uint32_t attempt = 1) {
    return step(LegFailed{.leg = leg(stage, attempt),
                          .error = {ErrorCode::kUnavailable, "refused"},
                          .reached = false});
  }
  Words sleep(Duration duration) {
    now += duration;
    return step(TimePassed{});
  }
  // Every request is gone, also from the table of workers.
  void expect_idle() {
    EXPECT_EQ(router().requests_alive(), 0U);
    EXPECT_EQ(router().next_wakeup(), kNever);
    for (const auto& [id, worker] : router().workers().all()) {
      EXPECT_EQ(worker.requests_in_flight, 0U) << worker.entry.name;
      EXPECT_EQ(worker.tokens_in_flight, 0U) << worker.entry.name;
      EXPECT_EQ(worker.prompts_in_flight, 0U) << worker.entry.name;
    }
  }

  RouterConfig config;
  std::unique_ptr<Router> made;
  Instant now{std::chrono::hours(1)};
  std::vector<StartLeg> starts;
  Refuse refusal;

  const std::vector<net::WorkerEntry> pair = {entry("p0", net::Role::kPrefill),
                                              entry("d0", net::Role::kDecode)};
  const std::vector<net::WorkerEntry> two_pairs = {
      entry("p0", net::Role::kPrefill), entry("p1", net::Role::kPrefill),
      entry("d0", net::Role::kDecode), entry("d1", net::Role::kDecode)};
  const std::vector<net::WorkerEntry> foreign = {entry("p0", net::Role::kPrefill, ""),
                                                 entry("d0", net::Role::kDecode, "")};
};

}  // namespace pdjob::router
