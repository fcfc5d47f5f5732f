// Requests with more choices than the engine has sequences.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker/batching/batcher_fixture.h"

namespace pdjob::worker {
namespace {

using BatcherTurns = BatcherTest;

TEST_F(BatcherTurns, LeavesASequenceToOthersWhenChoicesMustTakeTurns) {
  start(1, 5, 9);
  EXPECT_EQ(batcher.sequences_free(), 1U);
  EXPECT_EQ(run(), "run s0:r1[0+5]*9");
}

TEST_F(BatcherTurns, AWaitingChoiceTakesTheSequenceOfAnEndedOneWithThePromptsRows) {
  start(1, 5, 5);
  run();
  EXPECT_EQ(sampled(1, 0), Words{"deliver r1.0"});
  EXPECT_EQ(sampled(1, 1), (Words{"deliver r1.1", "fork s0 s1"}));
  EXPECT_EQ(sampled(1, 2), (Words{"deliver r1.2", "fork s0 s2"}));
  EXPECT_EQ(sampled(1, 3), Words{"deliver r1.3"}) << "every choice has its first token at once";
  EXPECT_EQ(sampled(1, 4), Words{"deliver r1.4"});
  EXPECT_EQ(run(), "run s0:r1.0 s1:r1.1 s2:r1.2");
  EXPECT_EQ(sampled(1, 1, true), (Words{"deliver r1.1 stop", "trim s1 5"}));
  EXPECT_EQ(sampled(1, 0, true), (Words{"deliver r1.0 stop", "trim s0 5"}));
  EXPECT_EQ(sampled(1, 2), Words{"deliver r1.2"});
  EXPECT_EQ(run(), "run s0:r1.4 s1:r1.3 s2:r1.2");
  for (const uint32_t choice : {2U, 3U}) {
    sampled(1, choice, true);
  }
  EXPECT_FALSE(ended);
  EXPECT_EQ(sampled(1, 4, true), (Words{"deliver r1.4 stop", "clear s0"}));
  EXPECT_TRUE(ended);
  EXPECT_EQ(batcher.sequences_free(), 4U);
}

TEST_F(BatcherTurns, AWaitingChoiceTakesASequenceWhoseChoiceEndedAtItsFirstToken) {
  start(1, 5, 5);
  run();
  EXPECT_EQ(sampled(1, 0, true), Words{"deliver r1.0 stop"});
  EXPECT_EQ(sampled(1, 1, true), Words{"deliver r1.1 stop"});
  sampled(1, 2);
  EXPECT_EQ(sampled(1, 3), (Words{"deliver r1.3", "fork s0 s1"}));
  EXPECT_EQ(sampled(1, 4), (Words{"deliver r1.4", "trim s0 5"}));
  EXPECT_EQ(run(), "run s0:r1.4 s1:r1.3 s2:r1.2");
}

TEST_F(BatcherTurns, DroppedChoicesThatWaitHoldNothing) {
  start(1, 5, 5);
  run();
  sampled(1, 0);
  sampled(1, 1, true);
  EXPECT_EQ(drop(1), (Words{"clear s0", "clear s2", "clear s1"}));
  EXPECT_EQ(batcher.sequences_free(), 4U);
}

TEST_F(BatcherTurns, EachOfManyChoicesEndsOnceHoweverFewSequencesThereAre) {
  constexpr uint32_t kChoices = 128;
  Batcher one{{.engine = {.sequences = 1, .rows_per_sequence = kRows, .batch_tokens = 10},
               .prompt_tokens_per_step = 8}};
  std::vector<Effect> effects;
  const RequestArrived arrived{
      .request = RequestId{1}, .prompt_tokens = 2, .choices = kChoices, .max_tokens = 2};
  const Held held = one.take(arrived, effects).value();
  one.start_prompt(arrived, held, effects);
  one.next_batch({});
  one.batch_finished({});
  for (uint32_t choice = 0; choice < kChoices; ++choice) {
    EXPECT_FALSE(one.token_sampled({.request = RequestId{1}, .choice = choice}, effects));
  }
  for (uint32_t choice = 0; choice < kChoices; ++choice) {
    EXPECT_EQ(word(RunStep{one.next_batch({})}), "run s0:r1." + std::to_string(choice));
    one.batch_finished({});
    EXPECT_EQ(one.token_sampled({.request = RequestId{1}, .choice = choice}, effects),
              choice + 1 == kChoices);
  }
  EXPECT_EQ(one.sequences_free(), 1U);
}

}  // namespace
}  // namespace pdjob::worker
