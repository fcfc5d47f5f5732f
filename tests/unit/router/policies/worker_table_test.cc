#include "router/policies/worker_table.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;

net::WorkerEntry entry(const std::string& name, net::Role role,
                       const std::string& engine_id = "e1") {
  return {.name = name,
          .engine_id = engine_id,
          .role = role,
          .host = "h",
          .port = 1,
          .model = "m",
          .kv_address = "{}"};
}

std::vector<uint64_t> ids(const std::vector<const Worker*>& workers) {
  std::vector<uint64_t> all;
  for (const Worker* worker : workers) {
    all.push_back(worker->id.value);
  }
  return all;
}

struct WorkerTableTest : testing::Test {
  WorkerTableTest() {
    table.replace({entry("p0", net::Role::kPrefill), entry("p1", net::Role::kPrefill),
                   entry("d0", net::Role::kDecode), entry("b0", net::Role::kBoth)});
  }
  std::vector<uint64_t> prefill(const std::vector<WorkerId>& except = {}) {
    return ids(table.candidates({.stage = Stage::kPrefill, .model = "m", .except = except}, now));
  }

  WorkerTable table;
  Instant now{std::chrono::hours(1)};
};

TEST_F(WorkerTableTest, OffersWorkersByStageAndModel) {
  EXPECT_EQ(prefill(), (std::vector<uint64_t>{1, 2}));
  const std::vector<WorkerId> none;
  EXPECT_EQ(ids(table.candidates({.model = "", .except = none}, now)),
            (std::vector<uint64_t>{3, 4}));
  EXPECT_TRUE(table.candidates({.model = "other", .except = none}, now).empty());
  EXPECT_EQ(prefill({WorkerId{1}}), (std::vector<uint64_t>{2}));
  EXPECT_TRUE(table.knows_model("m"));
  EXPECT_FALSE(table.knows_model("other"));
}

// 1,000 workers of a model, and a few of another one.
struct LargeFleet {
  LargeFleet() {
    std::vector<net::WorkerEntry> entries;
    for (size_t i = 0; i < 1000; ++i) {
      entries.push_back(entry("d" + std::to_string(i), net::Role::kDecode));
      entries.back().model = i < 990 ? "m" : "rare";
    }
    table.replace(entries);
  }
  std::vector<uint64_t> some(const std::string& model) {
    return ids(table.candidates({.model = model, .except = none, .some = &random}, now));
  }

  const std::vector<WorkerId> none;
  WorkerTable table;
  Random random{7};
  Instant now{std::chrono::hours(1)};
};

TEST(WorkerTable, OfALargeFleetSomeAreOfferedEachAsOftenAsOthers) {
  LargeFleet fleet;
  std::map<uint64_t, int> offered;
  constexpr int kDraws = 10000;
  for (int i = 0; i < kDraws; ++i) {
    const std::vector<uint64_t> found = fleet.some("m");
    ASSERT_EQ(found.size(), WorkerTable::kSome);
    ASSERT_TRUE(std::ranges::is_sorted(found));
    for (const uint64_t id : found) {
      ++offered[id];
    }
  }
  EXPECT_EQ(offered.size(), 990U);
  constexpr double kMean = kDraws * WorkerTable::kSome / 990.0;
  for (const auto& [id, times] : offered) {
    EXPECT_GT(times, 0.7 * kMean) << id;
    EXPECT_LT(times, 1.4 * kMean) << id;
  }
}

TEST(WorkerTable, OfALargeFleetTheFewThatFitAreFound) {
  LargeFleet fleet;
  EXPECT_EQ(fleet.some("rare").size(), 10U);
  for (const auto& [id, worker] : fleet.table.all()) {
    if (worker.entry.model == "rare" && id.value % 10 != 0) {
      fleet.table.note_failed(id, fleet.now);
    }
  }
  EXPECT_EQ(fleet.some("rare").size(), 1U);
  EXPECT_TRUE(fleet.some("none").empty());
}

TEST_F(WorkerTableTest, OfASmallFleetAllAreOffered) {
  Random random(1);
  const std::vector<WorkerId> none;
  EXPECT_EQ(ids(table.candidates({.model = "m", .except = none, .some = &random}, now)),
            (std::vector<uint64_t>{3, 4}));
}

TEST_F(WorkerTableTest, GivesANewIdToANewIncarnation) {
  const auto gone =
      table.replace({entry("p0", net::Role::kPrefill, "e2"), entry("p1", net::Role::kPrefill)});
  EXPECT_EQ(gone, (std::vector<WorkerId>{{1}, {3}, {4}}));
  EXPECT_EQ(prefill(), (std::vector<uint64_t>{2, 5}));
  EXPECT_EQ(table.find("p0")->id, WorkerId{5});
}

TEST_F(WorkerTableTest, IgnoresRoutersAndRepeatedNames) {
  table.replace({entry("r", net::Role::kRouter), entry("p0", net::Role::kPrefill),
                 entry("p0", net::Role::kDecode)});
  EXPECT_EQ(table.all().size(), 1U);
  EXPECT_EQ(table.find("p0")->entry.role, net::Role::kPrefill);
}

TEST_F(WorkerTableTest, PassesOverASuspectUntilItsBackoffEnds) {
  table.note_failed(WorkerId{1}, now);
  EXPECT_EQ(prefill(), (std::vector<uint64_t>{2}));
  now += WorkerTable::kBackoffFirst;
  EXPECT_EQ(table.find(WorkerId{1})->health(now), Health::kHalfOpen);
  EXPECT_EQ(prefill(), (std::vector<uint64_t>{1, 2}));
}

TEST_F(WorkerTableTest, GivesAHalfOpenWorkerOneTrialAtATime) {
  table.note_failed(WorkerId{1}, now);
  now += WorkerTable::kBackoffFirst;
  table.begin(WorkerId{1}, 5, now);
  EXPECT_EQ(prefill(), (std::vector<uint64_t>{2}));
  table.end(WorkerId{1}, 5);  // Cancelled, so the trial is undecided.
  EXPECT_EQ(prefill(), (std::vector<uint64_t>{1, 2}));
  table.begin(WorkerId{1}, 5, now);
  table.note_good(WorkerId{1});
  EXPECT_EQ(table.find(WorkerId{1})->health(now), Health::kHealthy);
}

TEST_F(WorkerTableTest, OffersSuspectsWhenNobodyElseIsLeft) {
  table.note_failed(WorkerId{1}, now);
  table.note_failed(WorkerId{2}, now);
  EXPECT_EQ(prefill(), (std::vector<uint64_t>{1, 2}));
}

TEST_F(WorkerTableTest, BackoffGrowsWithEachTrialThatFailsAndIsBounded) {
  table.note_failed(WorkerId{1}, now);
  table.note_failed(WorkerId{1}, now + milliseconds(1));  // The same cause.
  EXPECT_EQ(table.find(WorkerId{1})->retry_at - now, milliseconds(100));
  now += milliseconds(100);
  table.note_failed(WorkerId{1}, now);
  EXPECT_EQ(table.find(WorkerId{1})->retry_at - now, milliseconds(200));
  for (int i = 0; i < 100; ++i) {
    now = table.find(WorkerId{1})->retry_at;
    table.note_failed(WorkerId{1}, now);
  }
  EXPECT_EQ(table.find(WorkerId{1})->retry_at - now, WorkerTable::kBackoffMax);
}

TEST_F(WorkerTableTest, LoadIsTheLargerOfOwnAndReported) {
  table.begin(WorkerId{3}, 100, now);
  EXPECT_EQ(table.find(WorkerId{3})->load(), 100U);
  table.set_load("d0", "e1", {.tokens_queued = 50, .kv_rows_used = 200});
  EXPECT_EQ(table.find(WorkerId{3})->load(), 250U);
  table.set_load("d0", "another incarnation", {.kv_rows_used = 9999});
  EXPECT_EQ(table.find(WorkerId{3})->load(), 250U);
  // A prefill worker's rows wait for their fetch, which costs the worker nothing.
  table.set_load("p0", "e1", {.tokens_queued = 10, .kv_rows_used = 200});
  EXPECT_EQ(table.find(WorkerId{1})->load(), 10U);
}

TEST_F(WorkerTableTest, IgnoresWhatIsSaidOfWorkersThatLeft) {
  table.replace({});
  table.begin(WorkerId{1}, 5, now);
  table.end(WorkerId{1}, 5);
  table.note_good(WorkerId{1});
  table.note_failed(WorkerId{1}, now);
  EXPECT_EQ(table.find(WorkerId{1}), nullptr);
}

TEST_F(WorkerTableTest, OffersOnlyWorkersWithTheRoute) {
  net::WorkerEntry foreign = entry("f0", net::Role::kBoth);
  foreign.routes = {"/v1/rerank"};
  table.replace({entry("b0", net::Role::kBoth), foreign});
  const std::vector<WorkerId> none;
  const auto with = [&](std::string_view route) {
    return ids(table.candidates({.model = "m", .route = route, .except = none}, now)).size();
  };
  EXPECT_EQ(with(""), 2U);
  EXPECT_EQ(with("/v1/rerank"), 1U);
  EXPECT_EQ(with("/v1/score"), 0U);
}

TEST_F(WorkerTableTest, RemembersRoutesOfWorkersThatAreAway) {
  net::WorkerEntry foreign = entry("f0", net::Role::kBoth);
  foreign.routes = {"/v1/rerank"};
  foreign.adapters = {"sql"};
  table.replace({entry("b0", net::Role::kBoth), foreign});
  EXPECT_TRUE(table.knows_route("/v1/rerank", "m"));
  EXPECT_TRUE(table.knows_route("/v1/rerank", ""));
  EXPECT_TRUE(table.knows_route("/v1/rerank", "sql")) << "an adapter of that model";
  EXPECT_FALSE(table.knows_route("/v1/rerank", "other"));
  EXPECT_FALSE(table.knows_route("/v1/score", "m"));
  table.replace({});
  EXPECT_TRUE(table.knows_route("/v1/rerank", "m"));
}

TEST_F(WorkerTableTest, AnAdapterIsAModelOfTheWorkersThatHaveIt) {
  net::WorkerEntry tuned = entry("b1", net::Role::kBoth);
  tuned.adapters = {"sql"};
  table.replace({entry("b0", net::Role::kBoth), tuned});
  const std::vector<WorkerId> none;
  const auto named = [&](std::string_view model) {
    return ids(table.candidates({.model = model, .except = none}, now)).size();
  };
  EXPECT_EQ(named("m"), 2U);
  EXPECT_EQ(named("sql"), 1U);
  EXPECT_TRUE(table.knows_model("sql"));
  EXPECT_FALSE(table.knows_model("tone"));
}

TEST_F(WorkerTableTest, WhatTheRouterDidToAdaptersCountsUntilTheWorkerListsOthers) {
  const WorkerId id = table.find("b0")->id;
  table.note_adapter(id, "sql", true);
  net::WorkerEntry told = entry("b0", net::Role::kBoth);
  table.replace({told});
  EXPECT_TRUE(table.find(id)->has_adapter("sql")) << "the list is from before";
  told.adapters = {"sql", "tone"};
  table.replace({told});
  table.note_adapter(id, "tone", false);
  table.replace({told});
  EXPECT_FALSE(table.find(id)->has_adapter("tone"));
  told.adapters = {};
  table.replace({told});
  EXPECT_FALSE(table.find(id)->has_adapter("sql"));
}

}  // namespace
}  // namespace pdjob::router
