#include "worker/batching/spare_room.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct SpareRoomTest : testing::Test {
  // A step of an engine whose steps take `fixed`, and `each` for each token.
  void step(uint32_t tokens, Duration fixed, Duration each) {
    room.step_begins(tokens, now);
    now += fixed + each * tokens;
    room.step_ends(now);
  }
  void learn(Duration fixed, Duration each) {
    for (uint32_t i = 0; i < 40; ++i) {
      step(1 + i % 8, fixed, each);
    }
  }

  Instant now{std::chrono::hours(1)};
  SpareRoom room{0.05, 16};
};

TEST_F(SpareRoomTest, AnEngineWhoseStepsCostLittlePerTokenHasMuchRoom) {
  learn(milliseconds(20), microseconds(50));
  EXPECT_NEAR(room.beside(4), 20, 2);  // 5 % of 20.2 ms.
  EXPECT_GE(room.alone(), 1000U);
}

TEST_F(SpareRoomTest, AnEngineThatPaysForEachTokenHasNone) {
  learn(Duration::zero(), milliseconds(5));
  EXPECT_EQ(room.beside(4), 0U);
  EXPECT_EQ(room.alone(), 4U);
}

TEST_F(SpareRoomTest, UntilStepsAreKnownThereIsNoRoom) {
  EXPECT_EQ(room.beside(4), 0U);
  EXPECT_EQ(room.alone(), 1U);
}

TEST_F(SpareRoomTest, OneTokenIsTakenNowAndThenWithoutRoom) {
  learn(Duration::zero(), milliseconds(5));
  uint32_t taken = 0;
  for (uint32_t i = 0; i < 3 * SpareRoom::kProbeEvery; ++i) {
    taken += room.beside(4);
  }
  EXPECT_EQ(taken, 3U);
}

TEST_F(SpareRoomTest, FollowsAnEngineThatBecomesSlower) {
  learn(milliseconds(20), microseconds(50));
  for (int i = 0; i < 40; ++i) {
    learn(Duration::zero(), milliseconds(5));
  }
  EXPECT_EQ(room.beside(4), 0U);
}

TEST_F(SpareRoomTest, AStepThatWaitedForSomethingElseHardlyCounts) {
  learn(milliseconds(20), milliseconds(1));
  learn(milliseconds(20), milliseconds(1));
  for (int i = 0; i < 20; ++i) {
    step(1, milliseconds(500), milliseconds(1));  // A step of few tokens, as slow as many.
    learn(milliseconds(20), milliseconds(1));
  }
  EXPECT_EQ(room.beside(4), 1U);  // 5 % of 24 ms.
}

TEST_F(SpareRoomTest, KeepsSequencesOnlyWhileOthersAreExpected) {
  EXPECT_EQ(room.reserve(now), 0U);
  room.note_other(now);
  EXPECT_EQ(room.reserve(now), 2U);
  now += SpareRoom::kLately;
  EXPECT_EQ(room.reserve(now), 0U);
  SpareRoom one(0.05, 1);
  one.note_other(now);
  EXPECT_EQ(one.reserve(now), 0U);
}

}  // namespace
}  // namespace pdjob::worker
