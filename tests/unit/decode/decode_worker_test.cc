#include "decode/decode_worker.h"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/core_story.h"

namespace pdjob::decode {
namespace {

using std::chrono::seconds;
using worker::KvMode;
using worker::RequestArrived;
using worker::Words;

constexpr worker::EngineSize kEngine{.sequences = 3, .rows_per_sequence = 32, .batch_tokens = 16};

struct DecodeWorkerTest : testing::Test {
  static RequestArrived fetched(uint64_t request, uint32_t choices = 1, uint32_t max_tokens = 3,
                                Instant deadline = kNever) {
    return {.request = RequestId{request},
            .prompt_tokens = 10,
            .choices = choices,
            .max_tokens = max_tokens,
            .kv = KvMode::kFetch,
            .deadline = deadline};
  }
  static RequestArrived local(uint64_t request, uint32_t prompt_tokens = 10) {
    return {.request = RequestId{request}, .prompt_tokens = prompt_tokens, .max_tokens = 2};
  }
  // Brings request `request` to its first token.
  void start_decoding(uint64_t request) {
    story.arrive(fetched(request));
    story.rows_fetched(request);
    story.tail_sampled(request);
  }

  worker::CoreStory story{core_factory({.local_chunk_tokens = 8, .requests_queued = 2})(kEngine)};
};

// --- the straight ways

TEST_F(DecodeWorkerTest, FetchesThenSamplesTheTailThenDecodes) {
  EXPECT_EQ(story.arrive(fetched(1)), Words{"fetch r1 s0 rows 10"});
  EXPECT_EQ(story.run(), Words{});
  EXPECT_EQ(story.rows_fetched(1), Words{"sample-tail r1*1"});
  EXPECT_EQ(story.tail_sampled(1), Words{"deliver r1.0"});
  EXPECT_EQ(story.run(), Words{"run s0:r1.0"});
  EXPECT_EQ(story.ran(), Words{"deliver r1.0"});
  story.run();
  EXPECT_EQ(story.ran(), (Words{"deliver r1.0 length", "clear s0", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(DecodeWorkerTest, FetchesOnceForAllChoices) {
  EXPECT_EQ(story.arrive(fetched(1, 2)), Words{"fetch r1 s0 rows 10"});
  EXPECT_EQ(story.rows_fetched(1), Words{"sample-tail r1*2"});
  EXPECT_EQ(story.tail_sampled(1, 2), (Words{"deliver r1.0", "deliver r1.1", "fork s0 s1"}));
  EXPECT_EQ(story.run(), Words{"run s0:r1.0 s1:r1.1"});
  EXPECT_EQ(story.ran({{1, 0}}), (Words{"deliver r1.0 stop", "clear s0", "deliver r1.1"}));
  EXPECT_EQ(story.run(), Words{"run s1:r1.1"});
}

TEST_F(DecodeWorkerTest, EndsARequestOfOneTokenWithoutAStep) {
  story.arrive(fetched(1, 2, 1));
  story.rows_fetched(1);
  EXPECT_EQ(story.tail_sampled(1, 2), (Words{"deliver r1.0 length", "deliver r1.1 length",
                                             "clear s1", "clear s0", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(DecodeWorkerTest, DecodesInOneBatchBesideTheChunksOfALocalPrompt) {
  start_decoding(1);
  EXPECT_EQ(story.arrive(local(2)), Words{});
  EXPECT_EQ(story.run(), Words{"run s0:r1.0 s1:r2[0+8]"});
  EXPECT_EQ(story.ran(), Words{"deliver r1.0"});
  EXPECT_EQ(story.run(), Words{"run s0:r1.0 s1:r2[8+2]*1"});
  EXPECT_EQ(story.ran(), (Words{"deliver r1.0 length", "clear s0", "end r1", "deliver r2.0"}));
}

TEST_F(DecodeWorkerTest, ALocalPromptIsCutSmallOnlyWhileSomebodyDecodes) {
  story.arrive(local(1, 31));
  EXPECT_EQ(story.run(), Words{"run s0:r1[0+16]"});
  story.arrive(fetched(2));
  story.rows_fetched(2);
  story.ran();
  story.tail_sampled(2);
  EXPECT_EQ(story.run(), Words{"run s0:r1[16+8] s1:r2.0"});
  story.ran();
}

TEST_F(DecodeWorkerTest, FetchesForTheNextWhenSequencesAreFree) {
  story.arrive(fetched(1, 3, 1));
  EXPECT_EQ(story.arrive(fetched(2)), Words{"await r2"});
  story.rows_fetched(1);
  EXPECT_EQ(story.tail_sampled(1, 3),
            (Words{"deliver r1.0 length", "deliver r1.1 length", "clear s1", "deliver r1.2 length",
                   "clear s2", "clear s0", "end r1", "fetch r2 s0 rows 10"}));
}

TEST_F(DecodeWorkerTest, KeepsTheOrderOfArrivalAlsoWhereALaterRequestWouldFit) {
  story.arrive(fetched(1, 2));
  EXPECT_EQ(story.arrive(fetched(2, 2)), Words{"await r2"});
  EXPECT_EQ(story.arrive(fetched(3, 1)), Words{"await r3"});
}

TEST_F(DecodeWorkerTest, AwaitsNothingForALocalPromptOrARequestItRefuses) {
  story.arrive(fetched(1, 3));
  EXPECT_EQ(story.arrive(local(2)), Words{});
  EXPECT_EQ(story.arrive(fetched(3)), Words{"await r3"});
  EXPECT_EQ(story.arrive(fetched(4)), (Words{"fail r4 overloaded", "end r4"}));
}

TEST_F(DecodeWorkerTest, CountsRowsThatAreOnTheirWay) {
  story.arrive(fetched(1));
  EXPECT_EQ(story.core().load().requests_running, 1U);
  EXPECT_EQ(story.core().load().rows_used, 10U);
}

// --- rows that are there already

struct KeepingDecodeWorkerTest : DecodeWorkerTest {
  static RequestArrived with_prompt(RequestArrived request, uint32_t prompt_tokens,
                                    Token first = 1) {
    std::vector<Token> prompt(prompt_tokens);
    std::iota(prompt.begin(), prompt.end(), first);
    request.prompt_tokens = prompt_tokens;
    request.prompt = worker::make_prompt(std::move(prompt));
    return request;
  }
  static RequestArrived local(uint64_t request, uint32_t prompt_tokens, Token first = 1) {
    return with_prompt(DecodeWorkerTest::local(request), prompt_tokens, first);
  }
  static RequestArrived fetched(uint64_t request, uint32_t prompt_tokens, Token first = 1) {
    return with_prompt(DecodeWorkerTest::fetched(request), prompt_tokens, first);
  }
  void finish() {
    while (!story.run().empty()) {
      story.ran();
    }
  }
};

TEST_F(KeepingDecodeWorkerTest, ComputesOnlyWhatIsNewOfALocalPrompt) {
  EXPECT_EQ(story.arrive(local(1, 16)), Words{"reuse r1 0/16"});
  finish();
  EXPECT_TRUE(story.idle());
  EXPECT_EQ(story.arrive(local(2, 22)), Words{"reuse r2 16/22"});
  EXPECT_EQ(story.run(), Words{"run s0:r2[16+6]*1"});
}

TEST_F(KeepingDecodeWorkerTest, KeepsNothingOfAFetchedPrompt) {
  EXPECT_EQ(story.arrive(fetched(1, 16)), Words{"fetch r1 s0 rows 16"});
  story.rows_fetched(1);
  story.tail_sampled(1);
  story.run_and_finish();
  story.run();
  EXPECT_EQ(story.ran(), (Words{"deliver r1.0 length", "clear s0", "end r1"}));
  EXPECT_EQ(story.arrive(local(2, 22)), Words{"reuse r2 0/22"});
}

TEST_F(KeepingDecodeWorkerTest, FetchesIntoNoRowsOfOthers) {
  story.arrive(local(1, 16));
  finish();
  EXPECT_EQ(story.arrive(fetched(2, 22)), (Words{"fork s0 s1", "clear s0", "fetch r2 s0 rows 22"}));
}

TEST_F(KeepingDecodeWorkerTest, DecodesInTheLowestSequenceWhereverRowsAre) {
  story.arrive(local(1, 16));
  finish();
  story.arrive(local(2, 16, 100));
  finish();
  EXPECT_EQ(story.arrive(local(3, 22)),
            (Words{"fork s0 s2", "clear s0", "fork s1 s0", "clear s1", "reuse r3 16/22"}));
  EXPECT_EQ(story.run(), Words{"run s0:r3[16+6]*1"});
}

TEST_F(KeepingDecodeWorkerTest, KeepsThePromptOfAClientThatLeft) {
  story.arrive(local(1, 16));
  story.run_and_finish();
  EXPECT_EQ(story.cancel(1), (Words{"trim s0 16", "end r1"}));
  EXPECT_EQ(story.arrive(local(2, 22)), Words{"reuse r2 16/22"});
}

TEST_F(KeepingDecodeWorkerTest, KeepsNothingOfAFailedOrCancelledFetch) {
  story.arrive(fetched(1, 16));
  EXPECT_EQ(story.fetch_failed(1), (Words{"clear s0", "fail r1 unavailable", "end r1"}));
  story.arrive(fetched(2, 16));
  story.cancel(2);
  EXPECT_EQ(story.rows_fetched(2), (Words{"clear s0", "end r2"}));
  story.arrive(fetched(3, 16));
  story.fetch_failed(3, false);
  EXPECT_EQ(story.fetch_released(3), Words{"clear s0"});
  EXPECT_EQ(story.arrive(local(4, 22)), Words{"reuse r4 0/22"});
}

TEST_F(KeepingDecodeWorkerTest, KeepsNothingOfAFailedStep) {
  story.arrive(local(1, 16));
  story.run_and_finish();
  story.run();
  EXPECT_EQ(story.step_failed(), (Words{"fail r1 internal", "clear s0", "end r1"}));
}

TEST_F(KeepingDecodeWorkerTest, KeepsNothingWhenItIsOff) {
  worker::CoreStory off{core_factory({.prefix_cache = false})(kEngine)};
  EXPECT_EQ(off.arrive(local(1, 16)), Words{});
  off.run_and_finish();
  off.run();
  EXPECT_EQ(off.ran(), (Words{"deliver r1.0 length", "clear s0", "end r1"}));
}

// --- a fetch fails

TEST_F(DecodeWorkerTest, FreesTheSequencesOfAFailedFetchAtOnce) {
  story.arrive(fetched(1, 2));
  EXPECT_EQ(story.fetch_failed(1),
            (Words{"clear s0", "clear s1", "fail r1 unavailable", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(DecodeWorkerTest, RetiresTheSequenceThatAPeerMayStillWrite) {
  story.arrive(fetched(1, 2));
  EXPECT_EQ(story.fetch_failed(1, false), (Words{"clear s1", "fail r1 unavailable", "end r1"}));
  EXPECT_EQ(story.arrive(fetched(2, 2)), Words{"fetch r2 s1 rows 10"});
  EXPECT_EQ(story.arrive(fetched(3)), Words{"await r3"});
  EXPECT_EQ(story.fetch_released(1), (Words{"clear s0", "fetch r3 s0 rows 10"}));
}

// --- a client leaves

TEST_F(DecodeWorkerTest, ForgetsACancelledRequestThatWaits) {
  story.arrive(fetched(1, 3));
  story.arrive(fetched(2));
  EXPECT_EQ(story.cancel(2), Words{"end r2"});
}

TEST_F(DecodeWorkerTest, AwaitsTheOutcomeOfACancelledFetch) {
  story.arrive(fetched(1));
  EXPECT_EQ(story.cancel(1), Words{"cancel-fetch r1"});
  EXPECT_EQ(story.cancel(1), Words{});
  EXPECT_EQ(story.fetch_failed(1), (Words{"clear s0", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(DecodeWorkerTest, RetiresTheSequenceOfACancelledFetchThatMayStillBeWritten) {
  story.arrive(fetched(1));
  story.cancel(1);
  EXPECT_EQ(story.fetch_failed(1, false), Words{"end r1"});
  EXPECT_EQ(story.fetch_released(1), Words{"clear s0"});
}

TEST_F(DecodeWorkerTest, DropsRowsThatArriveInTheRaceWithACancel) {
  story.arrive(fetched(1, 2));
  story.cancel(1);
  EXPECT_EQ(story.rows_fetched(1), (Words{"clear s0", "clear s1", "end r1"}));
  EXPECT_EQ(story.run(), Words{});
  EXPECT_TRUE(story.idle());
}

TEST_F(DecodeWorkerTest, FreesARequestCancelledWhileDecoding) {
  start_decoding(1);
  EXPECT_EQ(story.cancel(1), (Words{"clear s0", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(DecodeWorkerTest, FreesALocalPromptCancelledHalfway) {
  story.arrive(local(1));
  story.run_and_finish();
  EXPECT_EQ(story.cancel(1), (Words{"clear s0", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(DecodeWorkerTest, IgnoresACancelOfWhatHasEnded) { EXPECT_EQ(story.cancel(9), Words{}); }

// --- the engine fails

TEST_F(DecodeWorkerTest, FailsExactlyTheRequestsOfAFailedStep) {
  start_decoding(1);
  story.arrive(fetched(2));
  story.run();
  EXPECT_EQ(story.step_failed(), (Words{"fail r1 internal", "clear s0", "end r1"}));
  EXPECT_EQ(story.rows_fetched(2), Words{"sample-tail r2*1"});
  EXPECT_EQ(story.tail_sampled(2), Words{"deliver r2.0"});
  EXPECT_EQ(story.run(), Words{"run s1:r2.0"});
}

TEST_F(DecodeWorkerTest, FailsARequestInAllItsChoicesWhenOneSampleFails) {
  story.arrive(fetched(1, 2));
  story.rows_fetched(1);
  worker::TailSampled outcome;
  outcome.sampled = {{.request = RequestId{1}, .choice = 0}};
  outcome.failed = {{RequestId{1}, {ErrorCode::kInternal, "a dead end"}}};
  EXPECT_EQ(story.step(outcome), (Words{"fail r1 internal", "clear s0", "clear s1", "end r1"}));
  EXPECT_TRUE(story.idle());
}

TEST_F(DecodeWorkerTest, FailsARequestOnceWhenSeveralOfItsSamplesFail) {
  story.arrive(fetched(1, 2));
  story.rows_fetched(1);
  story.tail_sampled(1, 2);
  story.run();
  const worker::SampleFailure failure{RequestId{1}, {ErrorCode::kCorrupt, "not a number"}};
  EXPECT_EQ(story.step(worker::StepFinished{.failed = {failure, failure}}),
            (Words{"fail r1 corrupt", "clear s0", "clear s1", "end r1"}));
}

// --- time and drain

TEST_F(DecodeWorkerTest, FailsWhatWaitedTooLongAndAdmitsWhatWaitedBehindIt) {
  story.arrive(fetched(1, 2));
  story.arrive(fetched(2, 2, 3, story.now + seconds(1)));
  story.arrive(fetched(3));
  EXPECT_EQ(story.core().next_wakeup(), story.now + seconds(1));
  EXPECT_EQ(story.sleep(seconds(1)), (Words{"fail r2 timeout", "end r2", "fetch r3 s2 rows 10"}));
}

TEST_F(DecodeWorkerTest, RefusesBeyondItsQueue) {
  story.arrive(fetched(1, 3));
  story.arrive(fetched(2));
  story.arrive(fetched(3));
  EXPECT_EQ(story.arrive(fetched(4)), (Words{"fail r4 overloaded", "end r4"}));
}

TEST_F(DecodeWorkerTest, DrainsAtOnceWhenIdle) { EXPECT_EQ(story.drain(), Words{"drained"}); }

TEST_F(DecodeWorkerTest, FinishesWhatItHasBeforeItIsDrained) {
  story.arrive(fetched(1, 1, 1));
  EXPECT_EQ(story.drain(), Words{});
  EXPECT_EQ(story.arrive(fetched(2)), (Words{"fail r2 unavailable", "end r2"}));
  story.rows_fetched(1);
  EXPECT_EQ(story.tail_sampled(1), (Words{"deliver r1.0 length", "clear s0", "end r1", "drained"}));
}

TEST_F(DecodeWorkerTest, IsDrainedWithARetiredSequence) {
  story.arrive(fetched(1));
  story.drain();
  EXPECT_EQ(story.fetch_failed(1, false), (Words{"fail r1 unavailable", "end r1", "drained"}));
  EXPECT_EQ(story.fetch_released(1), Words{"clear s0"});
}

TEST_F(DecodeWorkerTest, SaysOnceThatItIsDrained) {
  EXPECT_EQ(story.drain(), Words{"drained"});
  EXPECT_EQ(story.arrive(fetched(1)), (Words{"fail r1 unavailable", "end r1"}));
  EXPECT_EQ(story.cancel(1), Words{});
  EXPECT_EQ(story.sleep(seconds(1)), Words{});
  EXPECT_EQ(story.drain(), Words{});
}

TEST_F(DecodeWorkerTest, NeverOffers) { EXPECT_DEATH(story.offer_ended(1), "never offers"); }

}  // namespace
}  // namespace pdjob::decode
