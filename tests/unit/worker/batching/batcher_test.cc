#include "worker/batching/batcher.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/worker_words.h"
#include "tests/unit/worker/batching/batcher_fixture.h"

namespace pdjob::worker {
namespace {

// --- who holds which sequence

TEST_F(BatcherTest, GivesLowestSequencesFirst) {
  EXPECT_EQ(sequences_of(take(3)), sequences({0, 1, 2}));
  EXPECT_EQ(give_back(1), Words{"clear s1"});
  EXPECT_EQ(give_back(0), Words{"clear s0"});
  EXPECT_EQ(sequences_of(take(1)), sequences({0}));
  EXPECT_EQ(sequences_of(take(2)), sequences({1, 3}));
}

TEST_F(BatcherTest, GivesAllChoicesOrNone) {
  EXPECT_TRUE(take(3));
  EXPECT_FALSE(take(2));
  EXPECT_EQ(batcher.sequences_free(), 1U);
}

TEST_F(BatcherTest, NeverTakesBackWhatIsFree) { EXPECT_DEATH(give_back(0), "was_taken"); }

// --- whose turn it is

TEST_F(BatcherTest, AfterAPromptAnotherRequestHasItsTurn) {
  start_input(1, 1, 6);
  start_input(2, 1, 6);
  start(3, 6);
  EXPECT_EQ(run(), "run s0:r1[0+6]*1 s1:r2[0+2]");
  start(4, 6);
  EXPECT_EQ(run(), "run s1:r2[2+2] s2:r3[0+6]*1") << "a request that came later has to wait";
  EXPECT_EQ(run(), "run s1:r2[4+2]*1 s3:r4[0+6]*1");
}

// --- prompts whose every token is read

TEST(ReadingBatcher, AStepWithSuchAPromptIsSmallWhateverElseIsInIt) {
  Batcher batcher{{.engine = {.sequences = 4, .rows_per_sequence = 512, .batch_tokens = 256},
                   .prompt_tokens_per_step = 200}};
  std::vector<Effect> effects;
  const auto start = [&](uint64_t request, uint32_t tokens, bool reads) {
    const Prompt prompt = make_prompt(std::vector<Token>(tokens, 7));
    const RequestArrived arrived{.request = RequestId{request},
                                 .prompt_tokens = tokens,
                                 .prompt = prompt,
                                 .reads_prompt = reads};
    const Held held = batcher.take(arrived, effects).value();
    batcher.start_prompt(arrived, held, effects);
  };
  const auto run = [&] {
    const RunStep step{batcher.next_batch({})};
    batcher.batch_finished({});
    return word(step);
  };
  start(1, 230, false);
  start(2, 100, true);
  start(3, 50, false);
  EXPECT_EQ(run(), "run s0:r1[0+200]") << "a prompt before it is not slowed";
  EXPECT_EQ(run(), "run s0:r1[200+30]*1 s1:r2[0+34]") << "64 tokens in all";
  EXPECT_EQ(run(), "run s1:r2[34+64]");
  EXPECT_EQ(run(), "run s1:r2[98+2]*1 s2:r3[0+50]*1");
}

TEST(ReadingBatcher, SeveralSuchPromptsShareAStep) {
  Batcher batcher{{.engine = {.sequences = 4, .rows_per_sequence = 512, .batch_tokens = 256},
                   .prompt_tokens_per_step = 200}};
  std::vector<Effect> effects;
  for (const uint64_t request : {1U, 2U, 3U}) {
    const RequestArrived arrived{
        .request = RequestId{request}, .prompt_tokens = 30, .reads_prompt = true};
    const Held held = batcher.take(arrived, effects).value();
    batcher.start_prompt(arrived, held, effects);
  }
  EXPECT_EQ(word(RunStep{batcher.next_batch({})}), "run s0:r1[0+30]*1 s1:r2[0+30]*1 s2:r3[0+4]");
}

TEST(ReadingBatcher, SuchAPromptIsComputedWholeThoughItsRowsAreKept) {
  Batcher batcher{{.engine = {.sequences = 1, .rows_per_sequence = 128, .batch_tokens = 64},
                   .prompt_tokens_per_step = 64}};
  std::vector<Effect> effects;
  const Prompt prompt = make_prompt({1, 2, 3, 4});
  batcher.give_back(batcher.take({.prompt_tokens = 4, .prompt = prompt}, effects)->sequences[0],
                    {.prompt = prompt, .rows = 4}, effects);
  EXPECT_EQ(batcher.take({.prompt_tokens = 4, .prompt = prompt, .reads_prompt = true}, effects)
                ->there.rows,
            0U);
}

// --- what goes on from another worker

TEST_F(BatcherTest, AContinuedChoiceComputesWhatItHadAsAPromptIsComputed) {
  start(1, 2, 1, 14);
  run();
  EXPECT_EQ(sampled(1, 0, false, 11), Words{"deliver r1.0"});
  EXPECT_EQ(run(), "run s0:r1.0[0+8]");
  EXPECT_EQ(batcher.rows_used(false), 2U + 8U);
  EXPECT_EQ(run(), "run s0:r1.0[8+3]*1");
  EXPECT_EQ(sampled(1), Words{"deliver r1.0"});
  EXPECT_EQ(run(), "run s0:r1.0");
  EXPECT_EQ(batcher.rows_used(false), 2U + 12U);
}

TEST_F(BatcherTest, EachContinuedChoiceGoesOnFromItsOwnToken) {
  start(1, 2, 3, 14);
  run();
  sampled(1, 0, false, 5);
  EXPECT_EQ(sampled(1, 1, true, 4),
            (Words{"deliver r1.1 stop", "clear s1"}));  // It had ended at the other worker.
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
  // A batch has room for 10 tokens; three of them decode.
  EXPECT_EQ(run(), "run s0:r1.0 s1:r1.1 s2:r1.2 s3:r2[0+7]");
}

TEST_F(BatcherTest, OrdersItemsBySequenceNotByRequest) {
  start(1, 1);
  start(2, 1);
  run();
  sampled(1, 0, true);
  sampled(2);
  start(3, 1);  // It gets sequence 0 again.
  EXPECT_EQ(run(), "run s0:r3[0+1]*1 s1:r2.0");
}

TEST_F(BatcherTest, ReportsHowFarPromptsAre) {
  start(1, 10);
  batcher.next_batch({});
  auto progress = batcher.batch_finished({});
  ASSERT_EQ(progress.size(), 1U);
  EXPECT_EQ(progress[0].rows, 8U);
  EXPECT_FALSE(progress[0].complete);
  batcher.next_batch({});
  progress = batcher.batch_finished({});
  ASSERT_EQ(progress.size(), 1U);
  EXPECT_EQ(progress[0].rows, 10U);
  EXPECT_TRUE(progress[0].complete);
}

TEST_F(BatcherTest, ForgetsTheProgressOfWhatWasRemovedWhileItRan) {
  start(1, 10);
  batcher.next_batch({});
  EXPECT_EQ(drop(1), Words{"clear s0"});
  EXPECT_TRUE(batcher.batch_finished({}).empty());
  EXPECT_TRUE(batcher.requests_in_batch().empty());
}

TEST_F(BatcherTest, NamesEachRequestOfTheBatchOnce) {
  start(1, 2, 2);
  run();
  sampled(1, 0);
  sampled(1, 1);
  start(2, 4);
  start(3, 4);
  EXPECT_FALSE(take(1));  // A fourth request has to wait.
  batcher.next_batch({});
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
  EXPECT_EQ(sequences_of(take(1)), sequences({0}));
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
  batcher.start_decoding(kFetched, *take(2));
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
  give_back(0);
  EXPECT_EQ(batcher.sequences_free(), 4U);
}

// --- removal

TEST_F(BatcherTest, FreesEverySequenceOfAPromptDroppedHalfway) {
  start(1, 12, 2);
  run();
  EXPECT_EQ(drop(1), (Words{"clear s0", "clear s1"}));
  EXPECT_FALSE(batcher.holds(RequestId{1}));
  EXPECT_EQ(run(), "run");
}

TEST_F(BatcherTest, FreesOnlyWhatIsStillHeld) {
  start(1, 2, 3);
  run();
  sampled(1, 0);
  sampled(1, 1, true);
  sampled(1, 2);
  run();
  sampled(1, 0, true);
  EXPECT_EQ(drop(1), Words{"clear s2"});
}

TEST_F(BatcherTest, FreesTheEndedFirstSequenceThatWasNotForkedYet) {
  start(1, 2, 2);
  run();
  sampled(1, 0, true);
  EXPECT_EQ(drop(1), (Words{"clear s0", "clear s1"}));
}

TEST_F(BatcherTest, LeavesTheFirstSequenceOfWhatIsDroppedToItsOffer) {
  start(1, 2, 2);
  batcher.keep_first(RequestId{1});
  run();
  sampled(1, 0, true);
  sampled(1, 1);
  EXPECT_EQ(drop(1), Words{"clear s1"});
  EXPECT_EQ(batcher.sequences_free(), 3U);
}

// --- rows that are kept

struct KeepingBatcherTest : testing::Test {
  static Prompt prompt(uint32_t tokens, Token first = 0, const std::string& tenant = "") {
    std::vector<Token> made(tokens);
    std::iota(made.begin(), made.end(), first);
    return make_prompt(std::move(made), tenant);
  }
  Words start(uint64_t request, const Prompt& prompt, uint32_t choices = 1,
              KvMode kv = KvMode::kLocal) {
    const auto tokens = static_cast<uint32_t>(prompt->tokens.size());
    std::vector<Effect> effects;
    const RequestArrived arrived{.request = RequestId{request},
                                 .prompt_tokens = tokens,
                                 .choices = choices,
                                 .max_tokens = 4,
                                 .kv = kv,
                                 .prompt = prompt};
    const auto held = batcher.take(arrived, effects);
    if (kv == KvMode::kFetch) {
      batcher.start_decoding(arrived, *held);
    } else {
      batcher.start_prompt(arrived, *held, effects);
    }
    return words(effects);
  }
  std::string run() {
    const RunStep step{batcher.next_batch({})};
    batcher.batch_finished({});
    return word(step);
  }
  Words sampled(uint64_t request, uint32_t choice = 0, bool stopped = false) {
    std::vector<Effect> effects;
    batcher.token_sampled({.request = RequestId{request}, .choice = choice, .stopped = stopped},
                          effects);
    return words(effects);
  }
  Words drop(uint64_t request, Batcher::Rows rows) {
    std::vector<Effect> effects;
    batcher.drop(RequestId{request}, rows, effects);
    return words(effects);
  }

  Batcher batcher{{.engine = {.sequences = 2, .rows_per_sequence = 128, .batch_tokens = 64},
                   .prompt_tokens_per_step = 64}};
};

TEST_F(KeepingBatcherTest, AnotherTenantsEqualPromptReusesNoRow) {
  start(1, prompt(40, 0, "a"));
  run();
  sampled(1, 0, true);
  const auto reuse = [](const Words& words) {
    return std::ranges::find_if(words, [](const std::string& w) { return w.starts_with("reuse"); });
  };
  const Words others = start(2, prompt(40, 0, "b"));
  ASSERT_NE(reuse(others), others.end());
  EXPECT_EQ(*reuse(others), "reuse r2 0/40");
  const Words own = start(3, prompt(40, 0, "a"));
  ASSERT_NE(reuse(own), own.end());
  EXPECT_EQ(*reuse(own), "reuse r3 39/40");
}

TEST_F(KeepingBatcherTest, ComputesOnlyWhatIsNotThere) {
  EXPECT_EQ(start(1, prompt(40)), Words{"reuse r1 0/40"});
  EXPECT_EQ(run(), "run s0:r1[0+40]*1");
  EXPECT_EQ(sampled(1, 0, true), (Words{"deliver r1.0 stop", "trim s0 40"}));
  EXPECT_EQ(batcher.rows_used(false), 0U);
  EXPECT_EQ(start(2, prompt(60)), Words{"reuse r2 40/60"});
  EXPECT_EQ(batcher.prompt_tokens_left(false), 20U);
  EXPECT_EQ(batcher.rows_used(false), 40U);
  EXPECT_EQ(run(), "run s0:r2[40+20]*1");
}

TEST_F(KeepingBatcherTest, ComputesTheLastTokenOfAPromptThatIsThereForItsLogits) {
  start(1, prompt(40));
  run();
  sampled(1, 0, true);
  EXPECT_EQ(start(2, prompt(40)), (Words{"trim s0 39", "reuse r2 39/40"}));
  EXPECT_EQ(run(), "run s0:r2[39+1]*1");
}

TEST_F(KeepingBatcherTest, KeepsNoGeneratedRowsAndNoCopies) {
  start(1, prompt(40), 2);
  run();
  sampled(1, 0);
  sampled(1, 1);
  run();
  EXPECT_EQ(sampled(1, 1, true), (Words{"deliver r1.1 stop", "clear s1"}));
  EXPECT_EQ(sampled(1, 0, true), (Words{"deliver r1.0 stop", "trim s0 40"}));
}

TEST_F(KeepingBatcherTest, ForksReusedRowsIntoFurtherChoices) {
  start(1, prompt(40));
  run();
  sampled(1, 0, true);
  EXPECT_EQ(start(2, prompt(50), 2), Words{"reuse r2 40/50"});
  EXPECT_EQ(run(), "run s0:r2[40+10]*2");
  sampled(2, 0);
  EXPECT_EQ(sampled(2, 1), (Words{"deliver r2.1", "fork s0 s1"}));
}

TEST_F(KeepingBatcherTest, KeepsTheRowsThatADroppedPromptHadComputed) {
  start(1, prompt(100));
  EXPECT_EQ(run(), "run s0:r1[0+64]");
  batcher.next_batch({});  // This batch did not finish.
  EXPECT_EQ(drop(1, Batcher::Rows::kKeep), Words{"trim s0 64"});
  EXPECT_EQ(start(2, prompt(100)), Words{"reuse r2 64/100"});
}

TEST_F(KeepingBatcherTest, KeepsNothingOfWhatFailed) {
  start(1, prompt(100));
  run();
  EXPECT_EQ(drop(1, Batcher::Rows::kClear), Words{"clear s0"});
  EXPECT_EQ(start(2, prompt(100)), Words{"reuse r2 0/100"});
}

TEST_F(KeepingBatcherTest, KeepsNothingThatWasFetched) {
  EXPECT_EQ(start(1, prompt(40), 1, KvMode::kFetch), Words{});
  EXPECT_EQ(sampled(1, 0, true), (Words{"deliver r1.0 stop", "clear s0"}));
  EXPECT_EQ(start(2, prompt(60)), Words{"reuse r2 0/60"});
}

TEST_F(KeepingBatcherTest, FetchesIntoAnEmptySequence) {
  start(1, prompt(40));
  run();
  sampled(1, 0, true);
  EXPECT_EQ(start(2, prompt(60), 1, KvMode::kFetch), (Words{"fork s0 s1", "clear s0"}));
  EXPECT_EQ(start(3, prompt(60)), Words{"reuse r3 40/60"});
}

TEST_F(KeepingBatcherTest, KeepsNothingWhenItIsOff) {
  Batcher off{{.engine = {.sequences = 1, .rows_per_sequence = 128, .batch_tokens = 64},
               .prompt_tokens_per_step = 64,
               .prefix_cache = false}};
  std::vector<Effect> effects;
  const RequestArrived arrived{.request = RequestId{1}, .prompt_tokens = 40, .prompt = prompt(40)};
  const auto held = off.take(arrived, effects);
  off.start_prompt(arrived, *held, effects);
  off.next_batch({});
  off.batch_finished({});
  off.token_sampled({.request = RequestId{1}}, effects);
  EXPECT_EQ(words(effects), (Words{"deliver r1.0 length", "clear s0"}));
}

// --- load

TEST_F(BatcherTest, CountsPromptTokensLeft) {
  start(1, 12);
  start(2, 5);
  EXPECT_EQ(batcher.prompt_tokens_left(false), 17U);
  run();
  EXPECT_EQ(batcher.prompt_tokens_left(false), 9U);
}

TEST_F(BatcherTest, CountsThePromptOnceUntilItIsForked) {
  start(1, 6, 3);
  EXPECT_EQ(batcher.rows_used(false), 0U);
  run();
  EXPECT_EQ(batcher.rows_used(false), 6U);
  for (uint32_t choice = 0; choice < 3; ++choice) {
    sampled(1, choice);
  }
  EXPECT_EQ(batcher.rows_used(false), 3U * 6U);  // The newest tokens have no rows yet.
  run();
  EXPECT_EQ(batcher.rows_used(false), 3U * 7U);
}

TEST_F(BatcherTest, CountsAFetchedPromptOnceUntilItIsForked) {
  batcher.start_decoding(kFetched, *take(2));
  EXPECT_EQ(batcher.rows_used(false), 5U);
}

TEST_F(BatcherTest, CountsTheRowsOfAnEndedFirstChoiceWhileItsSequenceIsHeld) {
  start(1, 2, 2);
  batcher.keep_first(RequestId{1});
  run();
  sampled(1, 0, true);
  EXPECT_EQ(batcher.rows_used(false), 2U);
  sampled(1, 1);
  EXPECT_EQ(batcher.rows_used(false), 2U + 2U);
}

}  // namespace
}  // namespace pdjob::worker
