#include "worker/foreign/pace.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

const Instant kStart{minutes(60)};

TEST(Pace, KnowsNothingAtFirst) {
  Pace pace;
  pace.take({.ttft = {100, 2}, .itl = {1, 1}}, {}, kStart);
  EXPECT_EQ(pace.ttft(), Duration::zero()) << "what was before the first sample was warm-up";
  EXPECT_EQ(pace.itl(), Duration::zero());
  EXPECT_EQ(pace.patience(), Duration::zero());
}

TEST(Pace, SaysTheMeanLatenciesSinceTheFirstSample) {
  Pace pace;
  pace.take({.ttft = {100, 2}, .itl = {1, 1}}, {}, kStart);
  pace.take({.ttft = {101, 6}, .itl = {1.5, 11}}, {}, kStart + seconds(1));
  EXPECT_EQ(pace.ttft(), milliseconds(250));
  EXPECT_EQ(pace.itl(), milliseconds(50));
}

TEST(Pace, SaysTheMeanOfEachPhase) {
  Pace pace;
  pace.take({.queue_time = {9, 9}, .prefill_time = {9, 9}, .kv_time = {9, 9}}, {}, kStart);
  EXPECT_EQ(pace.phases(kStart), net::PhaseMeans{}) << "that was warm-up";
  pace.take({.queue_time = {9.5, 19}, .prefill_time = {11, 19}, .kv_time = {9, 9}}, {}, kStart);
  const net::PhaseMeans expected{.queue_us = 50'000, .prefill_us = 200'000};
  EXPECT_EQ(pace.phases(kStart), expected);
  pace.take({.queue_time = {9.5, 19}, .prefill_time = {11, 19}, .kv_time = {10, 13}}, {}, kStart);
  EXPECT_EQ(pace.phases(kStart).kv_us, 250'000U);
  EXPECT_EQ(pace.phases(kStart + minutes(2)), net::PhaseMeans{});
}

TEST(Pace, WaitsThreeTimesAsLongAsTheLongestPause) {
  Pace pace;
  pace.take({}, seconds(4), kStart);
  pace.take({}, seconds(2), kStart + seconds(1));
  EXPECT_EQ(pace.patience(), seconds(12));
}

TEST(Pace, ForgetsAfterTwoWindows) {
  Pace pace;
  pace.take({.itl = {0, 0}}, {}, kStart);
  pace.take({.itl = {8, 1}}, seconds(4), kStart + seconds(1));
  pace.take({.itl = {8, 1}}, {}, kStart + Pace::kWindow);
  EXPECT_EQ(pace.patience(), seconds(12));
  EXPECT_EQ(pace.itl(), seconds(8));
  pace.take({.itl = {8, 1}}, {}, kStart + 2 * Pace::kWindow);
  EXPECT_EQ(pace.patience(), Duration::zero());
  EXPECT_EQ(pace.itl(), Duration::zero());
}

TEST(Pace, BelievesNoCounterThatShrinksAndNoLatencyOfDays) {
  Pace pace;
  pace.take({.ttft = {50, 5}}, {}, kStart);
  pace.take({.ttft = {40, 6}}, {}, kStart);
  EXPECT_EQ(pace.ttft(), Duration::zero());
  pace.take({.ttft = {1e15, 7}}, seconds(100'000), kStart);
  EXPECT_EQ(pace.ttft(), Pace::kPatienceMax);
  EXPECT_EQ(pace.patience(), Pace::kPatienceMax);
}

}  // namespace
}  // namespace pdjob::worker
