#include "launcher/scaling/failing_pairs.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

PairMember member(const std::string& name, uint64_t incarnation) {
  return {.name = name,
          .engine_id = name + "." + std::to_string(incarnation),
          .incarnation = {incarnation},
          .group = name.substr(0, name.find('-')),
          .group_whole = true,
          .has_peer = true};
}

struct FailingPairsTest : testing::Test {
  // The names of those that are replaced meanwhile.
  std::vector<std::string> told(const std::vector<FailingPair>& pairs, Duration duration) {
    std::vector<std::string> names;
    for (const Instant end = now + duration; now < end; now += std::chrono::milliseconds(500)) {
      for (const FailingWorker& worker : failing.step(pairs, pace, now)) {
        names.push_back(worker.name);
        reason = worker.reason;
      }
    }
    return names;
  }
  using Names = std::vector<std::string>;

  FailingPairs failing;
  ReplacementPace pace{minutes(2)};
  Instant now{hours(1)};
  std::string reason;
  FailingPair pair{member("prefill-0", 1), member("decode-0", 7), "the hand-over fails"};
};

TEST_F(FailingPairsTest, TheOlderOneIsReplacedAndThenTheOtherOne) {
  EXPECT_EQ(told({pair}, seconds(3)), Names{"prefill-0"});
  EXPECT_EQ(reason, "goes on failing with decode-0 (the hand-over fails)");
  pair.prefill = member("prefill-0", 9);
  EXPECT_EQ(told({pair}, seconds(3)), Names{"decode-0"});
}

TEST_F(FailingPairsTest, OneThatFailsWithMorePartnersIsReplacedThoughItIsYounger) {
  const FailingPair other{member("prefill-1", 2), pair.decode, pair.why};
  EXPECT_EQ(told({pair, other}, seconds(3)), Names{"decode-0"});
  EXPECT_NE(reason.find("prefill-0, prefill-1"), std::string::npos) << reason;
}

TEST_F(FailingPairsTest, TwoRoutersThatTellTheSameCountOnce) {
  const FailingPair other{pair.prefill, member("decode-1", 8), pair.why};
  EXPECT_EQ(told({pair, pair, pair, other}, seconds(3)), Names{"prefill-0"});
}

TEST_F(FailingPairsTest, OneWithoutAPeerStaysAndItsPartnerGoes) {
  pair.prefill.has_peer = false;
  EXPECT_EQ(told({pair}, seconds(3)), Names{"decode-0"});
  pair.decode = member("decode-0", 8);
  pair.decode.has_peer = false;
  EXPECT_EQ(told({pair}, hours(3)), Names{});
}

TEST_F(FailingPairsTest, NobodyIsReplacedWhileAWorkerOfOneOfTheirGroupsIsAway) {
  pair.decode.group_whole = false;
  EXPECT_EQ(told({pair}, minutes(5)), Names{});
  pair.decode.group_whole = true;
  EXPECT_EQ(told({pair}, seconds(1)), Names{"prefill-0"});
}

TEST_F(FailingPairsTest, AReportOfAnEarlierIncarnationDoesNotCount) {
  EXPECT_EQ(told({pair}, seconds(1)), Names{});
  pair.decode = member("decode-0", 8);
  EXPECT_EQ(told({pair}, seconds(1)), Names{});
  EXPECT_EQ(told({}, seconds(1)), Names{});
  EXPECT_EQ(told({pair}, seconds(1)), Names{});
}

TEST_F(FailingPairsTest, OneOfAGroupIsReplacedAtATimeAfterWaitsThatGrow) {
  const auto replaced_in = [this](Duration duration) { return told({pair}, duration).size(); };
  EXPECT_EQ(replaced_in(minutes(1)), 1U);
  EXPECT_EQ(replaced_in(seconds(50)), 0U);
  EXPECT_EQ(replaced_in(minutes(4)), 1U);
  EXPECT_EQ(replaced_in(minutes(3)), 1U);
  EXPECT_EQ(replaced_in(minutes(5)), 0U);
  const FailingPair other{member("prefill-1", 2), member("decode-1", 8), pair.why};
  now += hours(24);
  EXPECT_EQ(told({pair, other}, minutes(1)).size(), 1U);
}

TEST(ReplacementPace, GoesOnWithTheRecordOfAnEarlierLauncher) {
  const Instant now{hours(1)};
  ReplacementPace first(minutes(2));
  EXPECT_TRUE(first.allows("g", now));
  first.replaced("g", now);
  ReplacementPace second(minutes(2), first.record());
  EXPECT_FALSE(second.allows("g", now + minutes(2) - seconds(1)));
  EXPECT_TRUE(second.allows("g", now + minutes(2)));
  EXPECT_TRUE(second.allows("h", now));
  second.replaced("g", now + minutes(2));
  EXPECT_FALSE(second.allows("g", now + minutes(6) - seconds(1)));
  for (const Duration wrong : {Duration::min(), Duration::zero(), Duration::max()}) {
    ReplacementPace third(minutes(2), {{.name = "g", .wait = wrong}});
    third.replaced("g", now);
    EXPECT_FALSE(third.allows("g", now + minutes(2) - seconds(1)));
    EXPECT_TRUE(third.allows("g", now + ReplacementPace::kWaitMax));
  }
}

}  // namespace
}  // namespace pdjob::launcher
