// Prompts whose beginnings a store of KV may have.
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/worker_words.h"
#include "worker/batching/batcher.h"

namespace pdjob::worker {
namespace {

struct LoadingBatcher : testing::Test {
  static Prompt prompt(uint32_t tokens, Token first = 0) {
    std::vector<Token> made(tokens);
    std::iota(made.begin(), made.end(), first);
    return make_prompt(std::move(made));
  }
  Words start(uint64_t request, const Prompt& prompt, bool has_store = true) {
    std::vector<Effect> effects;
    const RequestArrived arrived{.request = RequestId{request},
                                 .prompt_tokens = static_cast<uint32_t>(prompt->tokens.size()),
                                 .max_tokens = 1,
                                 .prompt = prompt,
                                 .has_store = has_store};
    const auto held = batcher.take(arrived, effects);
    batcher.start_prompt(arrived, *held, effects);
    return words(effects);
  }
  Words load_ended(uint32_t sequence, uint32_t rows, bool region_safe = true) {
    std::vector<Effect> effects;
    const auto load = batcher.load_ended(
        {.sequence = SequenceId{sequence}, .rows = rows, .region_safe = region_safe}, effects);
    goes_on = load && !load->failed;
    failed = load && load->failed;
    return words(effects);
  }
  Words drop(uint64_t request) {
    std::vector<Effect> effects;
    batcher.drop(RequestId{request}, Batcher::Rows::kKeep, effects);
    return words(effects);
  }
  std::string run() {
    const RunStep step{batcher.next_batch({})};
    batcher.batch_finished({});
    return word(step);
  }

  Batcher batcher{{.engine = {.sequences = 2, .rows_per_sequence = 512, .batch_tokens = 256},
                   .prompt_tokens_per_step = 256}};
  // The result of the last load_ended(); both false: the request is gone.
  bool goes_on = false, failed = false;
};

TEST_F(LoadingBatcher, IsComputedFromWhereItsLoadEnded) {
  EXPECT_EQ(start(1, prompt(300)), Words{"load r1 s0 from 0"});
  EXPECT_EQ(run(), "run") << "no step computes it meanwhile";
  EXPECT_EQ(load_ended(0, 256), Words{"reuse r1 256/300"});
  EXPECT_TRUE(goes_on);
  EXPECT_EQ(run(), "run s0:r1[256+44]*1");
}

TEST_F(LoadingBatcher, OthersRunMeanwhile) {
  start(1, prompt(300));
  EXPECT_EQ(start(2, prompt(50, 1000)), Words{"reuse r2 0/50"}) << "too short to ask";
  EXPECT_EQ(run(), "run s1:r2[0+50]*1");
}

TEST_F(LoadingBatcher, AsksForNothingWithoutAStore) {
  EXPECT_EQ(start(1, prompt(300), false), Words{"reuse r1 0/300"});
}

TEST_F(LoadingBatcher, AStoreThatHasNothingCostsNothingElse) {
  start(1, prompt(200));
  EXPECT_EQ(load_ended(0, 0), Words{"reuse r1 0/200"});
  EXPECT_EQ(run(), "run s0:r1[0+200]*1");
}

TEST_F(LoadingBatcher, ASequenceThatTheStoreMayWriteIsGivenToNobody) {
  start(1, prompt(300));
  EXPECT_EQ(drop(1), Words{"cancel-load s0"});
  EXPECT_EQ(batcher.sequences_free(), 1U);
  EXPECT_EQ(batcher.rows_used(false), 512U);
  EXPECT_EQ(load_ended(0, 128), Words{"clear s0"});
  EXPECT_FALSE(goes_on || failed);
  EXPECT_EQ(batcher.sequences_free(), 2U);
}

TEST_F(LoadingBatcher, AStoreThatHangsKeepsTheSequenceUntilItIsReleased) {
  start(1, prompt(300));
  EXPECT_EQ(load_ended(0, 0, false), Words{});
  EXPECT_TRUE(failed) << "its request is dropped by the caller";
  drop(1);
  EXPECT_EQ(batcher.sequences_free(), 1U);
  std::vector<Effect> effects;
  batcher.load_released(SequenceId{0}, effects);
  EXPECT_EQ(words(effects), Words{"clear s0"});
  EXPECT_EQ(batcher.sequences_free(), 2U);
}

// An offer holds the first sequence of its request, and may outlive both.
TEST_F(LoadingBatcher, AHolderMayGiveTheSequenceBackAfterTheLoad) {
  start(1, prompt(300));
  batcher.keep_first(RequestId{1});
  EXPECT_EQ(drop(1), Words{});
  EXPECT_EQ(load_ended(0, 128), Words{});
  EXPECT_FALSE(goes_on || failed);
  std::vector<Effect> effects;
  batcher.give_back(SequenceId{0}, {}, effects);
  EXPECT_EQ(words(effects), Words{"clear s0"});
}

// --- choices that another worker began

struct ContinuedBatcher : LoadingBatcher {
  // Its prompt of 100 tokens was fetched, and `count` tokens are known.
  Words go_on(uint32_t count) {
    std::vector<Effect> effects;
    const RequestArrived arrived{.request = RequestId{1},
                                 .prompt_tokens = 100,
                                 .max_tokens = 400,
                                 .kv = KvMode::kFetch,
                                 .prompt = prompt(100),
                                 .has_store = true};
    const auto held = batcher.take(arrived, effects);
    batcher.start_decoding(arrived, *held);
    batcher.token_sampled({.request = RequestId{1}, .count = count}, effects);
    return words(effects);
  }
};

TEST_F(ContinuedBatcher, ManyTokensAreLoadedBeforeTheRestIsComputed) {
  EXPECT_EQ(go_on(200), (Words{"deliver r1.0", "load r1 s0 from 100"}));
  EXPECT_EQ(run(), "run");
  EXPECT_EQ(load_ended(0, 256), Words{});
  EXPECT_EQ(run(), "run s0:r1.0[156+44]*1");
}

TEST_F(ContinuedBatcher, FewTokensAreComputedAtOnce) {
  EXPECT_EQ(go_on(50), Words{"deliver r1.0"});
  EXPECT_EQ(run(), "run s0:r1.0[0+50]*1");
}

TEST_F(ContinuedBatcher, FailsIfTheStoreSpoiltRowsOfItsPrompt) {
  go_on(200);
  load_ended(0, 64);
  EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace pdjob::worker
