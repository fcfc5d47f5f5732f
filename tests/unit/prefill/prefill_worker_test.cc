#include "prefill/prefill_worker.h"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/core_story.h"

namespace pdjob::prefill {
namespace {

using std::chrono::seconds;
using worker::KvMode;
using worker::RequestArrived;
using worker::Words;

constexpr worker::EngineSize kEngine{.sequences = 2, .rows_per_sequence = 32, .batch_tokens = 16};

struct PrefillWorkerTest : testing::Test {
  static RequestArrived offered(uint64_t request, uint32_t prompt_tokens = 12,
                                Instant deadline = kNever) {
    return {.request = RequestId{request},
            .prompt_tokens = prompt_tokens,
            .kv = KvMode::kOffer,
            .deadline = deadline,
            .awaited = true};
  }
  static RequestArrived unawaited(uint64_t request) {
    RequestArrived arrived = offered(request);
    arrived.awaited = false;
    return arrived;
  }
  static RequestArrived behind(RequestArrived request) {
    request.background = true;
    return request;
  }
  static RequestArrived local(uint64_t request, uint32_t choices = 1, uint32_t max_tokens = 2) {
    return {.request = RequestId{request},
            .prompt_tokens = 4,
            .choices = choices,
            .max_tokens = max_tokens};
  }
  // Runs request `request` to its reply. Its rows then wait for their fetch.
  void commit(uint64_t request) {
    story.arrive(offered(request, 4));
    story.run_and_finish();
  }

  worker::CoreStory story{core_factory({.chunk_tokens = 8, .requests_queued = 2})(kEngine)};
};

TEST_F(PrefillWorkerTest, OffersAtOnceAndPushesRowsChunkByChunk) {
  EXPECT_EQ(story.arrive(offered(1, 20)), Words{"offer r1 s0"});
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+8]"});
  EXPECT_EQ(story.ran(), Words{"rows r1 8"});
  EXPECT_EQ(story.run(), Words{"run s0:r1[8+8]"});
  EXPECT_EQ(story.ran(), Words{"rows r1 16"});
  EXPECT_EQ(story.run(), Words{"run s0:r1[16+4]*1"});
  EXPECT_EQ(story.ran(), (Words{"commit r1 s0 rows 20", "deliver r1.0 length", "end r1"}));
  EXPECT_EQ(story.run(), Words{});
}

TEST_F(PrefillWorkerTest, HoldsCommittedRowsUntilTheOfferEnds) {
  commit(1);
  EXPECT_EQ(story.core().load().requests_running, 0U);
  EXPECT_EQ(story.core().load().rows_used, 4U);
  EXPECT_EQ(story.offer_ended(1), Words{"clear s0"});
  EXPECT_TRUE(story.idle());
}

TEST_F(PrefillWorkerTest, GivesASequenceOnToTheNextInTheQueue) {
  commit(1);
  commit(2);
  EXPECT_EQ(story.arrive(offered(3)), Words{});
  EXPECT_EQ(story.core().load().requests_queued, 1U);
  EXPECT_EQ(story.offer_ended(1), (Words{"clear s0", "offer r3 s0"}));
}

// --- who gets the last sequence

TEST_F(PrefillWorkerTest, KeepsItsLastSequenceForAPromptThatIsAwaited) {
  commit(1);
  EXPECT_EQ(story.arrive(unawaited(2)), Words{});
  EXPECT_EQ(story.awaited(2), Words{"offer r2 s1"});
}

TEST_F(PrefillWorkerTest, PutsAnAwaitedPromptBeforeOlderOnes) {
  commit(1);
  story.arrive(unawaited(2));
  EXPECT_EQ(story.arrive(offered(3)), Words{"offer r3 s1"});
  EXPECT_EQ(story.offer_ended(1), Words{"clear s0"});
  EXPECT_EQ(story.awaited(2), Words{"offer r2 s0"});
}

TEST_F(PrefillWorkerTest, KeepsItsLastSequenceWhenTheDecodeWorkerHasLeft) {
  commit(1);
  commit(2);
  story.arrive(offered(3));
  EXPECT_EQ(story.awaited(3, false), Words{});
  EXPECT_EQ(story.offer_ended(2), Words{"clear s1"});
}

TEST_F(PrefillWorkerTest, LetsADirectClientPassPromptsThatMayNotHaveTheLastSequence) {
  commit(1);
  story.arrive(unawaited(2));
  story.arrive(local(3));
  EXPECT_EQ(story.run(), Words{"run s1:r3[0+4]*1"});
}

TEST_F(PrefillWorkerTest, KeepsItsLastSequenceFromARequestThatHoldsAnother) {
  for (uint64_t prompt = 1; prompt <= 2; ++prompt) {
    RequestArrived input = local(prompt, 1, 1);
    input.group = RequestId{1};
    story.arrive(input);
  }
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+4]*1"});
  EXPECT_EQ(story.arrive(offered(3, 4)), Words{"offer r3 s1"});
}

// Otherwise a request with many inputs would keep a whole worker for itself.
TEST_F(PrefillWorkerTest, ServesTheRequestThatHoldsFewestSequencesFirst) {
  worker::CoreStory wide{core_factory({.chunk_tokens = 64, .requests_queued = 16})(
      {.sequences = 4, .rows_per_sequence = 32, .batch_tokens = 64})};
  for (uint64_t prompt = 1; prompt <= 6; ++prompt) {
    RequestArrived input = local(prompt, 1, 1);
    input.group = RequestId{1};
    wide.arrive(input);
  }
  wide.arrive(local(7, 1, 1));
  EXPECT_EQ(wide.run(), Words{"run s0:r1[0+4]*1 s1:r2[0+4]*1 s2:r3[0+4]*1 s3:r7[0+4]*1"});
  wide.arrive(local(8, 1, 1));
  wide.ran();
  const std::string next = wide.run().front();
  for (const char* const prompt : {":r4[", ":r5[", ":r8["}) {
    EXPECT_NE(next.find(prompt), std::string::npos) << next;
  }
  EXPECT_EQ(next.find(":r6["), std::string::npos) << next;
}

TEST_F(PrefillWorkerTest, StartsATwoHopPromptInItsOnlySequence) {
  worker::CoreStory single{core_factory({})({.sequences = 1, .rows_per_sequence = 32})};
  RequestArrived prompt = unawaited(1);
  EXPECT_EQ(single.arrive(prompt), Words{});
  single.cancel(1);
  prompt.two_hop = true;
  prompt.request = RequestId{2};
  EXPECT_EQ(single.arrive(prompt), Words{"offer r2 s0"});
}

TEST_F(PrefillWorkerTest, AnswersAWholeGenerationOfADirectClient) {
  EXPECT_EQ(story.arrive(local(1, 2)), Words{});
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+4]*2"});
  EXPECT_EQ(story.ran(), (Words{"deliver r1.0", "deliver r1.1", "fork s0 s1"}));
  EXPECT_EQ(story.run(), Words{"run s0:r1.0 s1:r1.1"});
  EXPECT_EQ(story.ran(), (Words{"deliver r1.0 length", "clear s0", "deliver r1.1 length",
                                "clear s1", "end r1"}));
  EXPECT_TRUE(story.idle());
}

// --- rows that a store may have

struct LoadingPrefillWorkerTest : testing::Test {
  static RequestArrived offered(uint64_t request) {
    std::vector<Token> prompt(200);
    std::iota(prompt.begin(), prompt.end(), 1);
    return {.request = RequestId{request},
            .prompt_tokens = 200,
            .kv = KvMode::kOffer,
            .prompt = worker::make_prompt(std::move(prompt)),
            .has_store = true,
            .awaited = true};
  }
  worker::CoreStory story{core_factory({.chunk_tokens = 100})(
      {.sequences = 2, .rows_per_sequence = 256, .batch_tokens = 100})};
};

TEST_F(LoadingPrefillWorkerTest, OffersWhatWasLoadedAndComputesTheRest) {
  EXPECT_EQ(story.arrive(offered(1)), (Words{"load r1 s0 from 0", "offer r1 s0"}));
  EXPECT_EQ(story.run(), Words{});
  EXPECT_EQ(story.step(worker::LoadEnded{.sequence = SequenceId{0}, .rows = 192}),
            (Words{"reuse r1 192/200", "rows r1 192"}));
  EXPECT_EQ(story.run(), Words{"run s0:r1[192+8]*1"});
}

TEST_F(LoadingPrefillWorkerTest, FailsOnlyTheRequestWhoseRowsAStoreMayWrite) {
  story.arrive(offered(1));
  EXPECT_EQ(story.step(worker::LoadEnded{.sequence = SequenceId{0}, .region_safe = false}),
            (Words{"fail r1 unavailable", "withdraw r1", "end r1"}));
  EXPECT_EQ(story.offer_ended(1), Words{"cancel-load s0"});
  EXPECT_EQ(story.arrive(offered(2)), (Words{"load r2 s1 from 0", "offer r2 s1"}));
  EXPECT_EQ(story.step(worker::LoadReleased{SequenceId{0}}), Words{"clear s0"});
}

TEST_F(LoadingPrefillWorkerTest, AClientThatLeavesEndsTheLoad) {
  story.arrive(offered(1));
  EXPECT_EQ(story.cancel(1), (Words{"withdraw r1", "end r1"}));
  EXPECT_EQ(story.offer_ended(1), Words{"cancel-load s0"});
  EXPECT_EQ(story.step(worker::LoadEnded{.sequence = SequenceId{0}, .rows = 64}),
            Words{"clear s0"});
  EXPECT_TRUE(story.idle());
}

// --- rows that are there already

struct KeepingPrefillWorkerTest : PrefillWorkerTest {
  // Prompts that begin with the same `first` share their leading tokens.
  static RequestArrived offered(uint64_t request, uint32_t prompt_tokens, Token first = 1) {
    RequestArrived arrived = PrefillWorkerTest::offered(request, prompt_tokens);
    std::vector<Token> prompt(prompt_tokens);
    std::iota(prompt.begin(), prompt.end(), first);
    arrived.prompt = worker::make_prompt(std::move(prompt));
    return arrived;
  }
  // Runs the whole life of an offer.
  void serve(uint64_t request, uint32_t prompt_tokens, Token first = 1) {
    story.arrive(offered(request, prompt_tokens, first));
    while (!story.run().empty()) {
      story.ran();
    }
    story.offer_ended(request);
  }
};

TEST_F(KeepingPrefillWorkerTest, OffersRowsThatAreThereAtOnceAndComputesTheRest) {
  EXPECT_EQ(story.arrive(offered(1, 20)), (Words{"reuse r1 0/20", "offer r1 s0"}));
  for (int chunk = 0; chunk < 3; ++chunk) {
    story.run_and_finish();
  }
  EXPECT_EQ(story.offer_ended(1), Words{"trim s0 20"});
  EXPECT_TRUE(story.idle());
  EXPECT_EQ(story.arrive(offered(2, 30)), (Words{"reuse r2 20/30", "offer r2 s0", "rows r2 20"}));
  EXPECT_EQ(story.core().load().tokens_queued, 10U);
  EXPECT_EQ(story.core().load().rows_used, 20U);
  EXPECT_EQ(story.run(), Words{"run s0:r2[20+8]"});
  EXPECT_EQ(story.ran(), Words{"rows r2 28"});
  EXPECT_EQ(story.run(), Words{"run s0:r2[28+2]*1"});
  EXPECT_EQ(story.ran(), (Words{"commit r2 s0 rows 30", "deliver r2.0 length", "end r2"}));
}

TEST_F(KeepingPrefillWorkerTest, ReusesNoRowsWhileAPeerMayReadThem) {
  serve(1, 20);
  story.arrive(offered(2, 30));
  EXPECT_EQ(story.arrive(offered(3, 30)), (Words{"reuse r3 0/30", "offer r3 s1"}));
}

TEST_F(KeepingPrefillWorkerTest, GivesCachedSequencesToPromptsThatBeginOtherwise) {
  serve(1, 20, 1);
  serve(2, 20, 100);
  EXPECT_EQ(story.arrive(offered(3, 20, 200)), (Words{"clear s0", "reuse r3 0/20", "offer r3 s0"}));
  EXPECT_EQ(story.arrive(offered(4, 30, 100)),
            (Words{"reuse r4 20/30", "offer r4 s1", "rows r4 20"}));
}

TEST_F(KeepingPrefillWorkerTest, KeepsWhatWasComputedOfAPromptWhoseClientLeft) {
  story.arrive(offered(1, 30));
  story.run_and_finish();
  story.run_and_finish();
  EXPECT_EQ(story.cancel(1), (Words{"withdraw r1", "end r1"}));
  EXPECT_EQ(story.offer_ended(1), Words{"trim s0 16"});
  EXPECT_EQ(story.arrive(offered(2, 30)), (Words{"reuse r2 16/30", "offer r2 s0", "rows r2 16"}));
}

TEST_F(KeepingPrefillWorkerTest, KeepsWhatWasComputedOfAPromptWhoseOfferEndedEarly) {
  story.arrive(offered(1, 30));
  story.run_and_finish();
  story.run_and_finish();
  EXPECT_EQ(story.offer_ended(1), (Words{"trim s0 16", "fail r1 unavailable", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(KeepingPrefillWorkerTest, KeepsNothingOfAFailedStep) {
  serve(1, 20);
  story.arrive(offered(2, 30));
  story.run();
  EXPECT_EQ(story.step_failed(), (Words{"fail r2 internal", "withdraw r2", "end r2"}));
  EXPECT_EQ(story.offer_ended(2), Words{"clear s0"});
  EXPECT_EQ(story.arrive(offered(3, 30)), (Words{"reuse r3 0/30", "offer r3 s0"}));
}

TEST_F(KeepingPrefillWorkerTest, KeepsNothingOfASampleThatFailed) {
  serve(1, 20);
  story.arrive(offered(2, 21));
  story.run();
  story.step(
      worker::StepFinished{.failed = {{RequestId{2}, {ErrorCode::kInternal, "not a number"}}}});
  EXPECT_EQ(story.offer_ended(2), Words{"clear s0"});
}

TEST_F(KeepingPrefillWorkerTest, KeepsNothingWhenItIsOff) {
  worker::CoreStory off{core_factory({.chunk_tokens = 32, .prefix_cache = false})(kEngine)};
  EXPECT_EQ(off.arrive(offered(1, 16)), Words{"offer r1 s0"});
  off.run_and_finish();
  EXPECT_EQ(off.offer_ended(1), Words{"clear s0"});
}

TEST_F(KeepingPrefillWorkerTest, ReusesTheRowsOfADirectClient) {
  RequestArrived direct = offered(1, 20);
  direct.kv = KvMode::kLocal;
  direct.max_tokens = 3;
  story.arrive(direct);
  while (!story.run().empty()) {
    story.ran();
  }
  EXPECT_EQ(story.arrive(offered(2, 30)), (Words{"reuse r2 20/30", "offer r2 s0", "rows r2 20"}));
}

// --- cancelled

TEST_F(PrefillWorkerTest, ForgetsACancelledRequestThatWaits) {
  commit(1);
  commit(2);
  story.arrive(offered(3));
  EXPECT_EQ(story.cancel(3), Words{"end r3"});
}

TEST_F(PrefillWorkerTest, WithdrawsTheOfferWhenItsClientLeavesBeforeCommit) {
  story.arrive(offered(1, 20));
  story.run_and_finish();
  EXPECT_EQ(story.cancel(1), (Words{"withdraw r1", "end r1"}));
  EXPECT_EQ(story.run(), Words{});
  // The rows of request 1 may still be read.
  EXPECT_EQ(story.arrive(offered(2)), Words{"offer r2 s1"});
  EXPECT_EQ(story.offer_ended(1), Words{"clear s0"});
  EXPECT_EQ(story.arrive(offered(3)), Words{"offer r3 s0"});
}

TEST_F(PrefillWorkerTest, KeepsTheOfferWhenItsClientLeavesAfterCommit) {
  commit(1);
  EXPECT_EQ(story.cancel(1), Words{});
  EXPECT_EQ(story.core().load().rows_used, 4U);
  EXPECT_EQ(story.offer_ended(1), Words{"clear s0"});
}

TEST_F(PrefillWorkerTest, FreesADirectRequestWhoseClientLeaves) {
  story.arrive(local(1, 2));
  story.run_and_finish();
  EXPECT_EQ(story.cancel(1), (Words{"clear s0", "clear s1", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(PrefillWorkerTest, IgnoresACancelOfWhatHasEnded) { EXPECT_EQ(story.cancel(9), Words{}); }

TEST_F(PrefillWorkerTest, GivesACancelledRequestsPlaceInTheQueueToTheNext) {
  story.arrive(local(1));
  story.arrive(local(2, 2));  // It needs both sequences.
  story.arrive(local(3));
  EXPECT_EQ(story.cancel(2), Words{"end r2"});
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+4]*1 s1:r3[0+4]*1"});
}

// --- failures

TEST_F(PrefillWorkerTest, FailsThePromptWhoseOfferEndsEarly) {
  story.arrive(offered(1, 20));
  story.run_and_finish();
  // Unavailable, not cancelled: when a decode worker or its link died, the router tries another
  // pair.
  EXPECT_EQ(story.offer_ended(1), (Words{"clear s0", "fail r1 unavailable", "end r1"}));
  EXPECT_EQ(story.run(), Words{});
  EXPECT_TRUE(story.idle());
}

TEST_F(PrefillWorkerTest, FailsExactlyTheRequestsOfAFailedStep) {
  story.arrive(offered(1, 8));
  story.arrive(offered(2, 8));
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+8]*1"});
  EXPECT_EQ(story.step_failed(), (Words{"fail r1 internal", "withdraw r1", "end r1"}));
  EXPECT_EQ(story.run(), Words{"run s1:r2[0+8]*1"});
  EXPECT_EQ(story.offer_ended(1), Words{"clear s0"});
}

TEST_F(PrefillWorkerTest, EndsTheOfferOfASampleThatFailed) {
  story.arrive(offered(1, 4));
  story.run();
  const worker::StepFinished failed{
      .failed = {{RequestId{1}, {ErrorCode::kInternal, "not a number"}}}};
  EXPECT_EQ(story.step(failed),
            (Words{"commit r1 s0 rows 4", "fail r1 internal", "withdraw r1", "end r1"}));
  EXPECT_EQ(story.offer_ended(1), Words{"clear s0"});
  EXPECT_TRUE(story.idle());
}

TEST_F(PrefillWorkerTest, FailsARequestOnceWhenSeveralOfItsSamplesFail) {
  story.arrive(local(1, 2));
  story.run_and_finish();
  story.run();
  const worker::SampleFailure failure{RequestId{1}, {ErrorCode::kCorrupt, "not a number"}};
  EXPECT_EQ(story.step(worker::StepFinished{.failed = {failure, failure}}),
            (Words{"fail r1 corrupt", "clear s0", "clear s1", "end r1"}));
}

TEST_F(PrefillWorkerTest, FailsWhatWaitedTooLong) {
  commit(1);
  commit(2);
  story.arrive(offered(3, 4, story.now + seconds(1)));
  EXPECT_EQ(story.core().next_wakeup(), story.now + seconds(1));
  EXPECT_EQ(story.sleep(seconds(1)), (Words{"fail r3 timeout", "end r3"}));
  EXPECT_EQ(story.core().next_wakeup(), kNever);
}

TEST_F(PrefillWorkerTest, AdmitsWhatWaitedBehindARequestThatWaitedTooLong) {
  commit(1);
  RequestArrived both = local(2, 2);
  both.deadline = story.now + seconds(1);
  story.arrive(both);
  story.arrive(local(3));
  EXPECT_EQ(story.run(), Words{});
  EXPECT_EQ(story.sleep(seconds(1)), (Words{"fail r2 timeout", "end r2"}));
  EXPECT_EQ(story.run(), Words{"run s1:r3[0+4]*1"});
}

// --- drain

TEST_F(PrefillWorkerTest, DrainsAtOnceWhenIdle) { EXPECT_EQ(story.drain(), Words{"drained"}); }

TEST_F(PrefillWorkerTest, IsDrainedOnlyWhenItsOffersHaveEnded) {
  commit(1);
  EXPECT_EQ(story.drain(), Words{});
  EXPECT_EQ(story.arrive(offered(2)), (Words{"fail r2 unavailable", "end r2"}));
  EXPECT_EQ(story.offer_ended(1), (Words{"clear s0", "drained"}));
}

TEST_F(PrefillWorkerTest, FinishesWhatWaitsBeforeItIsDrained) {
  commit(1);
  commit(2);
  story.arrive(local(3, 1, 1));
  EXPECT_EQ(story.drain(), Words{});
  story.offer_ended(2);
  EXPECT_EQ(story.run_and_finish(), (Words{"deliver r3.0 length", "clear s1", "end r3"}));
  EXPECT_EQ(story.offer_ended(1), (Words{"clear s0", "drained"}));
}

TEST_F(PrefillWorkerTest, SaysOnceThatItIsDrained) {
  EXPECT_EQ(story.drain(), Words{"drained"});
  EXPECT_EQ(story.arrive(offered(1)), (Words{"fail r1 unavailable", "end r1"}));
  EXPECT_EQ(story.cancel(1), Words{});
  EXPECT_EQ(story.sleep(seconds(1)), Words{});
  EXPECT_EQ(story.drain(), Words{});
}

TEST_F(PrefillWorkerTest, NeverFetches) { EXPECT_DEATH(story.rows_fetched(1), "never fetches"); }

// --- the background

TEST_F(PrefillWorkerTest, PromptsInTheBackgroundStartAfterAllOthers) {
  commit(1);
  story.arrive(behind(offered(2)));  // Takes the last sequence.
  story.arrive(behind(offered(3)));
  story.arrive(offered(4));
  EXPECT_EQ(story.offer_ended(1), (Words{"clear s0", "offer r4 s0"}));
}

TEST_F(PrefillWorkerTest, AStepOfOtherPromptsTakesNoneOfTheBackground) {
  story.arrive(behind(offered(1, 20)));
  story.arrive(offered(2, 12));
  EXPECT_EQ(story.run(), Words{"run s1:r2[0+8]"});
  story.ran();
  EXPECT_EQ(story.run(), Words{"run s1:r2[8+4]*1"});
  story.ran();
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+2]"});  // A small part of a chunk: others may come.
}

TEST_F(PrefillWorkerTest, AloneABackgroundPromptHasWholeChunks) {
  story.arrive(behind(offered(1, 20)));
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+8]"});
}

// Otherwise prompts could wait here for sequences whose rows wait for the requests of these
// prompts, at a decode worker.
TEST_F(PrefillWorkerTest, OneAwaitedPromptOfTheBackgroundMayTakeTheLastSequence) {
  commit(1);
  EXPECT_EQ(story.arrive(behind(unawaited(2))), Words{});
  EXPECT_EQ(story.awaited(2), Words{"offer r2 s1"});
}

TEST_F(PrefillWorkerTest, AnIdleWorkerStartsABackgroundPromptThatNobodyAwaits) {
  story.arrive(offered(1, 4));
  story.run_and_finish();
  story.offer_ended(1);
  EXPECT_EQ(story.arrive(behind(unawaited(2))), Words{"offer r2 s0"});
}

}  // namespace
}  // namespace pdjob::prefill
