// Requests in the background at a decode worker: they take what others leave, and lose nothing.
#include <algorithm>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "decode/decode_worker.h"
#include "tests/support/core_story.h"

namespace pdjob::decode {
namespace {

using std::chrono::milliseconds;
using worker::KvMode;
using worker::RequestArrived;
using worker::Words;

constexpr worker::EngineSize kEngine{.sequences = 3, .rows_per_sequence = 64, .batch_tokens = 16};

RequestArrived fetched(uint64_t request, uint32_t max_tokens = 8) {
  return {.request = RequestId{request},
          .prompt_tokens = 10,
          .max_tokens = max_tokens,
          .kv = KvMode::kFetch};
}
RequestArrived local(uint64_t request) {
  return {.request = RequestId{request}, .prompt_tokens = 10, .max_tokens = 8};
}
RequestArrived behind(RequestArrived request) {
  request.background = true;
  return request;
}

struct BackgroundTest : testing::Test {
  // Brings a fetched request to its first token.
  void start(const RequestArrived& request) {
    story.arrive(request);
    story.rows_fetched(request.request.value);
    story.tail_sampled(request.request.value);
  }
  Words run_and_finish() {
    const Words run = story.run();
    story.now += milliseconds(10);
    const Words ran = story.ran();
    return run;
  }
  std::string background() const {
    const worker::CoreLoad load = story.core().load();
    return std::to_string(load.background_running) + " run, " +
           std::to_string(load.background_queued) + " wait";
  }

  worker::CoreStory story{core_factory({.local_chunk_tokens = 8, .requests_queued = 2})(kEngine)};
};

TEST_F(BackgroundTest, AloneItHasTheWholeEngine) {
  for (const uint64_t request : {1, 2, 3}) {
    start(behind(fetched(request)));
  }
  EXPECT_EQ(run_and_finish(), Words{"run s0:r1.0 s1:r2.0 s2:r3.0"});
  EXPECT_EQ(background(), "3 run, 0 wait");
  EXPECT_TRUE(story.idle());  // For whoever asks how much the others need.
}

TEST_F(BackgroundTest, ARequestThatFindsNoSequenceTakesOneOfTheBackgroundAtOnce) {
  for (const uint64_t request : {1, 2, 3}) {
    start(behind(fetched(request)));
  }
  run_and_finish();
  EXPECT_EQ(story.arrive(fetched(4)), (Words{"clear s0", "fetch r4 s0 rows 10"}));
  EXPECT_EQ(background(), "2 run, 1 wait");
  EXPECT_EQ(story.core().load().ways_given, 1U);
}

TEST_F(BackgroundTest, OneThatGaveWayGoesOnWithItsTokensAndDeliversNoneTwice) {
  for (const uint64_t request : {1, 2, 3}) {
    start(behind(fetched(request)));
  }
  run_and_finish();  // Each has 2 tokens.
  story.arrive(fetched(4, 1));
  story.rows_fetched(4);
  story.tail_sampled(4);  // It ends at once.
  story.now += std::chrono::minutes(1);
  EXPECT_EQ(story.sleep(milliseconds(0)), Words{});
  EXPECT_EQ(background(), "3 run, 0 wait");
  // Its prompt, without a sample; then what it had generated, in one step; then on.
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+8] s1:r2.0 s2:r3.0"});
  EXPECT_EQ(story.ran(), (Words{"deliver r2.0", "deliver r3.0"}));
  EXPECT_EQ(story.run(), Words{"run s0:r1[8+2] s1:r2.0 s2:r3.0"});
  story.ran();
  EXPECT_EQ(story.run(), Words{"run s0:r1.0[0+2]*1 s1:r2.0 s2:r3.0"});
  EXPECT_EQ(story.ran(), (Words{"deliver r1.0", "deliver r2.0", "deliver r3.0"}));
  EXPECT_EQ(story.run(), Words{"run s0:r1.0 s1:r2.0 s2:r3.0"});
}

TEST_F(BackgroundTest, OneThatGaveWayStillEndsAtItsLimit) {
  start(behind(fetched(1, 3)));
  start(behind(fetched(2)));
  start(behind(fetched(3)));
  run_and_finish();
  story.arrive(fetched(4, 1));
  story.rows_fetched(4);
  story.tail_sampled(4);
  story.sleep(std::chrono::minutes(1));
  run_and_finish();
  run_and_finish();
  EXPECT_EQ(story.run(), Words{"run s0:r1.0[0+2]*1 s1:r2.0 s2:r3.0"});
  const Words ran = story.ran();
  EXPECT_NE(std::ranges::find(ran, "deliver r1.0 length"), ran.end());
}

TEST_F(BackgroundTest, TheOneWithTheFewestRowsGivesWay) {
  start(behind(fetched(1)));
  run_and_finish();
  start(behind(fetched(2)));
  start(behind(fetched(3)));
  story.arrive(fetched(4));
  run_and_finish();
  story.cancel(2);
  EXPECT_EQ(background(), "2 run, 0 wait");  // It was request 2 that waited.
  EXPECT_EQ(story.run(), Words{"run s0:r1.0 s2:r3.0"});
}

TEST_F(BackgroundTest, NobodyGivesWayIfItWouldNotBeEnough) {
  start(behind(fetched(1)));
  start(fetched(2));
  start(fetched(3));
  RequestArrived two = fetched(4);
  two.choices = 2;
  EXPECT_EQ(story.arrive(two), Words{"await r4"});
  EXPECT_EQ(background(), "1 run, 0 wait");
}

TEST_F(BackgroundTest, ItWaitsWhileAStepHasBothAndTheStepWouldBeLonger) {
  start(behind(fetched(1)));
  start(fetched(2));
  EXPECT_EQ(run_and_finish(), Words{"run s1:r2.0"});
  EXPECT_EQ(run_and_finish(), Words{"run s1:r2.0"});
}

TEST_F(BackgroundTest, APromptOfTheBackgroundWaitsForOtherPrompts) {
  story.arrive(behind(local(1)));
  story.arrive(local(2));
  EXPECT_EQ(run_and_finish(), Words{"run s1:r2[0+10]*1"});
}

TEST_F(BackgroundTest, LeavesSequencesFreeWhileOthersAreExpected) {
  start(fetched(1, 1));
  start(behind(fetched(2)));
  start(behind(fetched(3)));
  EXPECT_EQ(story.arrive(behind(fetched(4))), Words{"await r4"});
  EXPECT_EQ(background(), "2 run, 1 wait");
  EXPECT_EQ(story.arrive(fetched(5)), Words{"fetch r5 s2 rows 10"});  // Nobody had to give way.
  EXPECT_EQ(story.core().load().ways_given, 0U);
}

TEST_F(BackgroundTest, FewOfItsFetchesAreUnderWayWhileOthersAreExpected) {
  start(fetched(1, 1));
  EXPECT_EQ(story.arrive(behind(fetched(2))), Words{"fetch r2 s0 rows 10"});
  EXPECT_EQ(story.arrive(behind(fetched(3))), Words{"await r3"});
  story.rows_fetched(2);
  EXPECT_EQ(story.tail_sampled(2), (Words{"deliver r2.0", "fetch r3 s1 rows 10"}));
}

TEST_F(BackgroundTest, AFullQueueOfTheBackgroundRefusesNobodyElse) {
  for (const uint64_t request : {1, 2, 3}) {
    start(fetched(request));
  }
  story.arrive(behind(fetched(4)));
  story.arrive(behind(fetched(5)));
  EXPECT_EQ(story.arrive(behind(fetched(6))).front().substr(0, 7), "fail r6");
  EXPECT_EQ(story.arrive(fetched(7)), Words{"await r7"});
}

TEST_F(BackgroundTest, ADrainWaitsForOneThatGaveWay) {
  for (const uint64_t request : {1, 2, 3}) {
    start(behind(fetched(request)));
  }
  story.arrive(fetched(4, 1));
  EXPECT_EQ(story.drain(), Words{});
  story.cancel(1);
  story.cancel(2);
  story.cancel(3);
  story.rows_fetched(4);
  const Words last = story.tail_sampled(4);
  EXPECT_EQ(last.back(), "drained");
}

}  // namespace
}  // namespace pdjob::decode
