#include "launcher/placement/node_trust.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "launcher/placement/placement.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

const Instant kBegin{seconds(1000)};

TEST(NodeTrust, AFewDeathsAreForgivenAndMoreAreNot) {
  NodeTrust trust;
  trust.blame("a", NodeTrust::kDeath, kBegin);
  trust.blame("a", NodeTrust::kDeath, kBegin + seconds(5));
  EXPECT_EQ(trust.level("a", kBegin + seconds(5)), 0U);
  trust.blame("a", NodeTrust::kDeath, kBegin + seconds(10));
  EXPECT_EQ(trust.level("a", kBegin + seconds(10)), 1U);
  EXPECT_EQ(trust.level("b", kBegin + seconds(10)), 0U);
  EXPECT_EQ(trust.levels(kBegin + seconds(10)), (TrustLevels{{"a", 1}}));
}

TEST(NodeTrust, FaultsOfOneMomentAreOne) {
  NodeTrust trust;
  for (int i = 0; i < 100; ++i) {
    trust.blame("a", NodeTrust::kDeath, kBegin);
  }
  EXPECT_EQ(trust.level("a", kBegin), 0U);
  trust.blame("a", NodeTrust::kSlow, kBegin);
  EXPECT_EQ(trust.level("a", kBegin), 1U) << "the heaviest one counts";
}

// Each comes soon after the last one, but they are not of one moment.
TEST(NodeTrust, AStreamOfDeathsIsNotOneMoment) {
  NodeTrust trust;
  for (int i = 0; i < 40; ++i) {
    trust.blame("a", NodeTrust::kDeath, kBegin + i * milliseconds(500));
  }
  EXPECT_EQ(trust.level("a", kBegin + seconds(20)), 6U);
}

TEST(NodeTrust, TimeHeals) {
  NodeTrust trust;
  trust.blame("a", NodeTrust::kSlow, kBegin);
  const Instant trusted = trust.trusted_at("a", kBegin);
  EXPECT_GT(trusted, kBegin + minutes(5));
  EXPECT_LT(trusted, kBegin + minutes(6));
  EXPECT_EQ(trust.level("a", trusted - seconds(1)), 1U);
  EXPECT_EQ(trust.level("a", trusted + seconds(1)), 0U);
  EXPECT_EQ(trust.trusted_at("a", trusted + seconds(1)), trusted + seconds(1));
  EXPECT_EQ(trust.trusted_at("b", kBegin), kBegin);
}

TEST(NodeTrust, HasABoundAndSoANodeIsTrustedAgain) {
  NodeTrust trust;
  for (int i = 0; i < 10000; ++i) {
    trust.blame("a", NodeTrust::kSlow, kBegin + i * seconds(2));
  }
  const Instant end = kBegin + 10000 * seconds(2);
  EXPECT_EQ(trust.level("a", end), NodeTrust::kLevelMax - 1);
  EXPECT_LT(trust.trusted_at("a", end), end + 3 * NodeTrust::kHalfLife + seconds(1));
}

TEST(NodeTrust, AnotherLauncherTrustsNodesAsTheOneBefore) {
  NodeTrust old;
  for (int i = 0; i < 7; ++i) {
    old.blame("a", NodeTrust::kDeath, kBegin + i * seconds(20));
  }
  old.blame("b", NodeTrust::kSlow, kBegin + minutes(1));
  const NodeTrust next(old.record());
  EXPECT_EQ(next.record(), old.record());
  for (Instant now = kBegin + minutes(2); now < kBegin + minutes(40); now += seconds(1)) {
    ASSERT_EQ(next.levels(now), old.levels(now));
    ASSERT_EQ(next.trusted_at("a", now), old.trusted_at("a", now));
  }
}

TEST(NodeTrust, ARecordMayHoldAnything) {
  NodeTrust trust({{"huge", 1e300, kBegin},
                   {"infinite", HUGE_VAL, kBegin},
                   {"none", std::nan(""), kBegin},
                   {"less", -HUGE_VAL, kBegin},
                   {"twice", 3, kBegin},
                   {"twice", 5, kBegin}});
  EXPECT_EQ(trust.levels(kBegin),
            (TrustLevels{
                {"huge", NodeTrust::kLevelMax}, {"infinite", NodeTrust::kLevelMax}, {"twice", 2}}));
  EXPECT_LT(trust.trusted_at("infinite", kBegin), kBegin + 4 * NodeTrust::kHalfLife);
  trust.blame("none", NodeTrust::kSlow, kBegin);
  EXPECT_EQ(trust.level("none", kBegin), 1U);
}

TEST(NodeTrust, ARecordHasABound) {
  NodeTrust trust;
  for (size_t i = 0; i < NodeTrust::kNodesMax + 10; ++i) {
    trust.blame(std::to_string(i), NodeTrust::kDeath, kBegin);
  }
  EXPECT_EQ(trust.record().size(), NodeTrust::kNodesMax);
}

Node node(const std::string& name, uint32_t cores, const std::string& cluster = "east") {
  return {.name = name, .host = "10.0.0.1", .cores = cores, .memory_bytes = 1, .cluster = cluster};
}

const Demand kDemand{.cores = 1, .role = "decode", .model = "m"};

TEST(NodeTrust, PlacementPrefersTrustedNodesAndRefusesNone) {
  Placement placement({node("a", 8), node("b", 2), node("c", 1, "west")});
  const TrustLevels levels{{"a", 2}, {"b", 1}};
  const auto taken = [&] {
    const auto choice = placement.take(kDemand, {.levels = &levels});
    return choice ? choice->place.node + ": " + to_string(choice->why) : "none";
  };
  EXPECT_FALSE(placement.has_room_elsewhere(kDemand, "c", 0, levels));
  EXPECT_TRUE(placement.has_room_elsewhere(kDemand, "a", 1, levels));
  EXPECT_EQ(taken(), "c: others failed lately");
  EXPECT_EQ(taken(), "b: others failed lately");
  EXPECT_EQ(taken(), "b: others failed lately");
  EXPECT_FALSE(placement.has_room_elsewhere(kDemand, "a", 1, levels));
  EXPECT_EQ(taken(), "a: the only node that fits");
}

}  // namespace
}  // namespace pdjob::launcher
