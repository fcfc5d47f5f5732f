#include "worker/batcher.h"

#include <gtest/gtest.h>

#include "tests/support/worker_words.h"

namespace pdjob::worker {
namespace {

constexpr uint32_t kRows = 16;

std::vector<SequenceId> sequences(std::initializer_list<uint32_t> values) {
  std::vector<SequenceId> result;
  for (const uint32_t value : values) {
    result.push_back(SequenceId{value});
  }
  return result;
}

struct BatcherTest : testing::Test {
  void start(uint64_t request, uint32_t prompt_tokens, uint32_t choices = 1,
             uint32_t max_tokens = 4) {
    batcher.start_prompt(RequestId{request}, batcher.take(choices).value(), prompt_tokens,
                         max_tokens);
  }
  // The next batch in words; its prompts count as computed.
  std::string run() {
    const RunStep step{batcher.next_batch()};
    batcher.batch_finished();
    return word(step);
  }
  Words sampled(uint64_t request, uint32_t choice = 0, bool stopped = false, uint32_t count = 1) {
    std::vector<Effect> effects;
    ended = batcher.token_sampled(
        {.request = RequestId{request}, .choice = choice, .stopped = stopped, .count = count},
        effects);
    return words(effects);
  }

  Batcher batcher{{.engine = {.sequences = 4, .rows_per_sequence = kRows, .batch_tokens = 10},
                   .prompt_tokens_per_step = 8}};
  bool ended = false;  // What the last sampled() answered.
};

// --- who holds which sequence

TEST_F(BatcherTest, GivesLowestSequencesFirst) {
  EXPECT_EQ(batcher.take(3), sequences({0, 1, 2}));
  batcher.give_back(SequenceId{1});
  batcher.give_back(SequenceId{0});
  EXPECT_EQ(batcher.take(1), sequences({0}));
  EXPECT_EQ(batcher.take(2), sequences({1, 3}));
}

TEST_F(BatcherTest, GivesAllChoicesOrNone) {
  EXPECT_TRUE(batcher.take(3));
  EXPECT_EQ(batcher.take(2), std::nullopt);
  EXPECT_EQ(batcher.sequences_free(), 1U);
}

TEST_F(BatcherTest, NeverTakesBackWhatIsFree) {
  EXPECT_DEATH(batcher.give_back(SequenceId{0}), "was_taken");
}

// --- what goes on from another worker

TEST_F(BatcherTest, AContinuedChoiceComputesWhatItHadAsAPromptIsComputed) {
  start(1, 2, 1, 14);
  run();
  EXPECT_EQ(sampled(1, 0, false, 11), Words{"deliver r1.0"});
  EXPECT_EQ(run(), "run s0:r1.0[0+8]");
  EXPECT_EQ(batcher.rows_used(), 2U + 8U);
  EXPECT_EQ(run(), "run s0:r1.0[8+3]*1");
  EXPECT_EQ(sampled(1), Words{"deliver r1.0"});
  EXPECT_EQ(run(), "run s0:r1.0");
  EXPECT_EQ(batcher.rows_used(), 2U + 12U);
}

TEST_F(BatcherTest, EachContinuedChoiceGoesOnFromItsOwnToken) {
  start(1, 2, 3, 14);
  run();
  sampled(1, 0, false, 5);
  EXPECT_EQ(sampled(1, 1, true, 4),
            (Words{"deliver r1.1 stop", "clear s1"}));  // It had ended there.
  EXPECT_EQ(sampled(1, 2), (Words{"deliver r1.2", "fork s0 s2"}));
  EXPECT_EQ(run(), "run s0:r1.0[0+5]*1 s2:r1.2");
}

TEST_F(BatcherTest, AContinuedChoiceEndsAtTheSameLength) {
  start(1, 2, 1, 6);
  run();
  EXPECT_EQ(sampled(1, 0, false, 6), (Words{"deliver r1.0 length", "clear s0"}));
  EXPECT_TRUE(ended);
}

// --- what a batch holds

TEST_F(BatcherTest, RunsNothingWhenNothingIsThere) { EXPECT_EQ(run(), "run"); }

TEST_F(BatcherTest, CutsPromptsIntoChunksInOrderOfArrival) {
  start(1, 12);
  start(2, 6);
  EXPECT_EQ(run(), "run s0:r1[0+8]");
  EXPECT_EQ(run(), "run s0:r1[8+4]*1 s1:r2[0+4]");
}

TEST_F(BatcherTest, RunsDecodingFirstAndFillsTheRestWithPrompts) {
  start(1, 2, 3);
  run();
  for (uint32_t choice = 0; choice < 3; ++choice) {
    sampled(1, choice);
  }
  start(2, 12);
  // 10 tokens fit a batch: three of them decode.
  EXPECT_EQ(run(), "run s0:r1.0 s1:r1.1 s2:r1.2 s3:r2[0+7]");
}

TEST_F(BatcherTest, OrdersItemsBySequenceNotByRequest) {
  start(1, 1);
  start(2, 1);
  run();
  sampled(1, 0, true);
  sampled(2);
  start(3, 1);  // Gets sequence 0 again.
  EXPECT_EQ(run(), "run s0:r3[0+1]*1 s1:r2.0");
}

TEST_F(BatcherTest, ReportsHowFarPromptsAre) {
  start(1, 10);
  batcher.next_batch();
  auto progress = batcher.batch_finished();
  ASSERT_EQ(progress.size(), 1U);
  EXPECT_EQ(progress[0].rows, 8U);
  EXPECT_FALSE(progress[0].complete);
  batcher.next_batch();
  progress = batcher.batch_finished();
  ASSERT_EQ(progress.size(), 1U);
  EXPECT_EQ(progress[0].rows, 10U);
  EXPECT_TRUE(progress[0].complete);
}

TEST_F(BatcherTest, ForgetsTheProgressOfWhatWasRemovedWhileItRan) {
  start(1, 10);
  batcher.next_batch();
  EXPECT_EQ(batcher.remove(RequestId{1}), sequences({0}));
  EXPECT_TRUE(batcher.batch_finished().empty());
  EXPECT_TRUE(batcher.requests_in_batch().empty());
}

TEST_F(BatcherTest, NamesEachRequestOfTheBatchOnce) {
  start(1, 2, 2);
  run();
  sampled(1, 0);
  sampled(1, 1);
  start(2, 4);
  start(3, 4);
  EXPECT_FALSE(batcher.take(1));  // A fourth has to wait.
  batcher.next_batch();
  EXPECT_EQ(batcher.requests_in_batch(),
            (std::vector<RequestId>{RequestId{1}, RequestId{2}, RequestId{3}}));
}

// --- what a token does

TEST_F(BatcherTest, ForksThePromptOnceIntoEachFurtherChoice) {
  start(1, 2, 3);
  run();
  EXPECT_EQ(sampled(1, 0), Words{"deliver r1.0"});
  EXPECT_EQ(sampled(1, 1), (Words{"deliver r1.1", "fork s0 s1"}));
  EXPECT_EQ(sampled(1, 2), (Words{"deliver r1.2", "fork s0 s2"}));
  run();
  EXPECT_EQ(sampled(1, 1), Words{"deliver r1.1"});
}

TEST_F(BatcherTest, KeepsThePromptOfAnEndedFirstChoiceUntilTheOthersHaveIt) {
  start(1, 2, 2);
  run();
  EXPECT_EQ(sampled(1, 0, true), Words{"deliver r1.0 stop"});
  EXPECT_EQ(sampled(1, 1), (Words{"deliver r1.1", "fork s0 s1", "clear s0"}));
  EXPECT_EQ(run(), "run s1:r1.1");
  EXPECT_EQ(batcher.take(1), sequences({0}));
}

TEST_F(BatcherTest, NeverForksIntoAChoiceThatEndsAtOnce) {
  start(1, 2, 2);
  run();
  sampled(1, 0);
  EXPECT_EQ(sampled(1, 1, true), (Words{"deliver r1.1 stop", "clear s1"}));
  EXPECT_FALSE(ended);
  EXPECT_EQ(run(), "run s0:r1.0");
}

TEST_F(BatcherTest, ClearsEverySequenceWhenAllChoicesEndAtOnce) {
  start(1, 2, 3, 1);
  run();
  EXPECT_EQ(sampled(1, 0), Words{"deliver r1.0 length"});
  EXPECT_EQ(sampled(1, 1), (Words{"deliver r1.1 length", "clear s1"}));
  EXPECT_EQ(sampled(1, 2), (Words{"deliver r1.2 length", "clear s2", "clear s0"}));
  EXPECT_TRUE(ended);
  EXPECT_EQ(batcher.sequences_free(), 4U);
  EXPECT_FALSE(batcher.holds(RequestId{1}));
}

TEST_F(BatcherTest, GoesOnWithOthersWhenTheFirstChoiceEndsLater) {
  start(1, 2, 2);
  run();
  sampled(1, 0);
  sampled(1, 1);
  run();
  EXPECT_EQ(sampled(1, 0, true), (Words{"deliver r1.0 stop", "clear s0"}));
  EXPECT_EQ(sampled(1, 1), Words{"deliver r1.1"});
  EXPECT_EQ(run(), "run s1:r1.1");
  EXPECT_EQ(sampled(1, 1, true), (Words{"deliver r1.1 stop", "clear s1"}));
  EXPECT_TRUE(ended);
  EXPECT_EQ(batcher.sequences_free(), 4U);
}

TEST_F(BatcherTest, EndsByLengthAtMaxTokens) {
  start(1, 2, 1, 2);
  run();
  EXPECT_EQ(sampled(1), Words{"deliver r1.0"});
  EXPECT_EQ(sampled(1), (Words{"deliver r1.0 length", "clear s0"}));
  EXPECT_TRUE(ended);
}

TEST_F(BatcherTest, EndsByLengthWhenTheContextIsFull) {
  start(1, kRows - 1, 1, 100);
  run();
  run();
  EXPECT_EQ(sampled(1), Words{"deliver r1.0"});
  EXPECT_EQ(sampled(1), (Words{"deliver r1.0 length", "clear s0"}));  // Row 15 was the last one.
}

TEST_F(BatcherTest, GivesAPromptThatFillsTheContextOneToken) {
  start(1, kRows, 1, 100);
  run();
  run();
  EXPECT_EQ(sampled(1), (Words{"deliver r1.0 length", "clear s0"}));
}

TEST_F(BatcherTest, CallsAnEndTokenStopAlsoWhereLengthWouldEndIt) {
  start(1, 2, 1, 1);
  run();
  EXPECT_EQ(sampled(1, 0, true), (Words{"deliver r1.0 stop", "clear s0"}));
}

TEST_F(BatcherTest, StartsDecodingWhoseTokensAreBeingSampledAlready) {
  batcher.start_decoding(RequestId{1}, *batcher.take(2), 5, 4);
  EXPECT_EQ(run(), "run");
  EXPECT_EQ(sampled(1, 0), Words{"deliver r1.0"});
  EXPECT_EQ(sampled(1, 1), (Words{"deliver r1.1", "fork s0 s1"}));
  EXPECT_EQ(run(), "run s0:r1.0 s1:r1.1");
}

// --- an offered first sequence

TEST_F(BatcherTest, KeepsAnOfferedSequenceWhenItsRequestEnds) {
  start(1, 2, 1, 1);
  batcher.keep_first(RequestId{1});
  run();
  EXPECT_EQ(sampled(1), Words{"deliver r1.0 length"});
  EXPECT_TRUE(ended);
  EXPECT_EQ(batcher.sequences_free(), 3U);
  batcher.give_back(SequenceId{0});
  EXPECT_EQ(batcher.sequences_free(), 4U);
}

// --- removal

TEST_F(BatcherTest, HandsBackEverySequenceOfAPromptRemovedHalfway) {
  start(1, 12, 2);
  run();
  EXPECT_EQ(batcher.remove(RequestId{1}), sequences({0, 1}));
  EXPECT_FALSE(batcher.holds(RequestId{1}));
  EXPECT_EQ(run(), "run");
}

TEST_F(BatcherTest, HandsBackOnlyWhatIsStillHeld) {
  start(1, 2, 3);
  run();
  sampled(1, 0);
  sampled(1, 1, true);
  sampled(1, 2);
  run();
  sampled(1, 0, true);
  EXPECT_EQ(batcher.remove(RequestId{1}), sequences({2}));
}

TEST_F(BatcherTest, HandsBackTheEndedFirstSequenceThatWasNotForkedYet) {
  start(1, 2, 2);
  run();
  sampled(1, 0, true);
  EXPECT_EQ(batcher.remove(RequestId{1}), sequences({0, 1}));
}

TEST_F(BatcherTest, HandsBackTheOfferedSequenceAlsoAfterItsChoiceEnded) {
  start(1, 2, 2);
  batcher.keep_first(RequestId{1});
  run();
  sampled(1, 0, true);
  sampled(1, 1);
  EXPECT_EQ(batcher.remove(RequestId{1}), sequences({0, 1}));
}

// --- load

TEST_F(BatcherTest, CountsPromptTokensLeft) {
  start(1, 12);
  start(2, 5);
  EXPECT_EQ(batcher.prompt_tokens_left(), 17U);
  run();
  EXPECT_EQ(batcher.prompt_tokens_left(), 9U);
}

TEST_F(BatcherTest, CountsThePromptOnceUntilItIsForked) {
  start(1, 6, 3);
  EXPECT_EQ(batcher.rows_used(), 0U);
  run();
  EXPECT_EQ(batcher.rows_used(), 6U);
  for (uint32_t choice = 0; choice < 3; ++choice) {
    sampled(1, choice);
  }
  EXPECT_EQ(batcher.rows_used(), 3U * 6U);  // The newest tokens have no rows yet.
  run();
  EXPECT_EQ(batcher.rows_used(), 3U * 7U);
}

TEST_F(BatcherTest, CountsAFetchedPromptOnceUntilItIsForked) {
  batcher.start_decoding(RequestId{1}, *batcher.take(2), 5, 4);
  EXPECT_EQ(batcher.rows_used(), 5U);
}

TEST_F(BatcherTest, CountsTheRowsOfAnEndedFirstChoiceWhileItsSequenceIsHeld) {
  start(1, 2, 2);
  batcher.keep_first(RequestId{1});
  run();
  sampled(1, 0, true);
  EXPECT_EQ(batcher.rows_used(), 2U);
  sampled(1, 1);
  EXPECT_EQ(batcher.rows_used(), 2U + 2U);
}

}  // namespace
}  // namespace pdjob::worker
