// Core, engine and KV endpoint together, with the fake engine: a decode worker continues what a
// prefill worker computed.
#include "worker/core/engine_thread.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "decode/decode_worker.h"
#include "engine/fake_engine.h"
#include "prefill/prefill_worker.h"
#include "tests/unit/worker/test_worker.h"

namespace pdjob::worker {
namespace {

struct EngineThreadTest : testing::Test {
  TestWorker prefill{{.name = "p0", .make_core = prefill::core_factory({.chunk_tokens = 8})}};
  TestWorker decode{{.name = "d0", .make_core = decode::core_factory({})}};
};

TEST_F(EngineThreadTest, ContinuesWhatAnotherWorkerComputed) {
  ASSERT_TRUE(decode.thread().submit(decode.request({.id = 1})));
  const std::string alone = decode.text(8);
  ASSERT_EQ(alone.size(), 8U);

  GenerationRequest fetched = decode.request({.id = 2, .kv = KvMode::kFetch});
  fetched.peer = prefill.address();
  ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
  ASSERT_TRUE(
      prefill.thread().submit(prefill.request({.id = 1, .kv = KvMode::kOffer, .max_tokens = 1})));
  EXPECT_EQ(prefill.expect<TokenOutput>().finish, FinishReason::kLength);
  EXPECT_GT(decode.expect<KvFetched>().bytes, 0U);
  EXPECT_EQ(decode.text(8), alone);
}

// Regression: a transfer id was used twice and brought the KV of another, shorter prompt. The
// missing rows were read from the sequence's earlier owner, and the answer looked good. The first
// fetch of a transfer id got its rows, and with them another client's answer.
TEST_F(EngineThreadTest, AnOfferReachesNoFetchOfAnotherPromptOrTenant) {
  ASSERT_TRUE(decode.thread().submit(decode.request({.id = 1})));
  const std::string alone = decode.text(8);
  const std::string prompt = TestWorker::Ask{}.prompt;
  std::string same_length = prompt;
  same_length.replace(same_length.find("dog"), 3, "cat");
  uint64_t id = 10;
  for (const auto& [thiefs_prompt, thief] :
       {std::pair(same_length, "alice"), std::pair(prompt, "mallory"), std::pair(prompt, "")}) {
    SCOPED_TRACE(thiefs_prompt + " of " + thief);
    const TransferId transfer{1, id};  // A name is used once.
    GenerationRequest stolen = decode.request(
        {.id = ++id, .kv = KvMode::kFetch, .prompt = thiefs_prompt, .transfer = transfer});
    const RequestId thiefs = stolen.id;
    stolen.tenant = thief;
    stolen.peer = prefill.address();
    ASSERT_TRUE(decode.thread().submit(std::move(stolen)));
    GenerationRequest offered =
        prefill.request({.id = id, .kv = KvMode::kOffer, .max_tokens = 1, .transfer = transfer});
    offered.tenant = "alice";
    ASSERT_TRUE(prefill.thread().submit(std::move(offered)));
    prefill.expect<TokenOutput>();
    GenerationRequest fetched =
        decode.request({.id = ++id, .kv = KvMode::kFetch, .transfer = transfer});
    fetched.tenant = "alice";
    fetched.peer = prefill.address();
    const RequestId owner = fetched.id;
    ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
    EXPECT_EQ(decode.expect<RequestFailed>().request, thiefs);
    EXPECT_EQ(decode.expect<KvFetched>().request, owner);
    EXPECT_EQ(decode.text(8), alone);
    decode.wait_idle();
  }
}

// Each turn of a conversation computes only the new part, wherever the last turn ran.
TEST_F(EngineThreadTest, GoesOnFromTheRowsOfTheTurnBefore) {
  TestWorker alone({.name = "d1", .make_core = decode::core_factory({.prefix_cache = false})});
  std::string prompt = "the quick brown fox jumps";
  uint32_t tokens_before = 0;
  for (uint64_t turn = 1; turn <= 3; ++turn) {
    SCOPED_TRACE(turn);
    const TransferId transfer{7, turn};
    ASSERT_TRUE(alone.thread().submit(alone.request({.id = turn, .prompt = prompt})));
    const std::string expected = alone.text(8);
    GenerationRequest fetched = decode.request(
        {.id = 2 * turn, .kv = KvMode::kFetch, .prompt = prompt, .transfer = transfer});
    fetched.peer = prefill.address();
    ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
    ASSERT_TRUE(prefill.thread().submit(prefill.request({.id = turn,
                                                         .kv = KvMode::kOffer,
                                                         .prompt = prompt,
                                                         .max_tokens = 1,
                                                         .transfer = transfer})));
    prefill.expect<TokenOutput>();
    EXPECT_EQ(prefill.rows_reused(), tokens_before);
    decode.expect<KvFetched>();
    EXPECT_EQ(decode.text(8), expected);
    // Rows that this worker computed earlier are reused by the next prompt computed here.
    ASSERT_TRUE(decode.thread().submit(decode.request({.id = 2 * turn + 1, .prompt = prompt})));
    EXPECT_EQ(decode.text(8), expected);
    EXPECT_EQ(decode.rows_reused(), tokens_before);
    tokens_before = static_cast<uint32_t>(prompt.size());
    EXPECT_EQ(alone.rows_reused(), 0U);
    prompt += expected + " and on";
    prefill.wait_idle();
  }
}

TEST_F(EngineThreadTest, RefusesATransferThatIsUnderWay) {
  ASSERT_TRUE(
      prefill.thread().submit(prefill.request({.id = 1, .kv = KvMode::kOffer, .max_tokens = 1})));
  ASSERT_TRUE(
      prefill.thread().submit(prefill.request({.id = 2, .kv = KvMode::kOffer, .max_tokens = 1})));
  const auto refused = prefill.expect<RequestFailed>();
  EXPECT_EQ(refused.request, RequestId{2});
  EXPECT_EQ(refused.error.code, ErrorCode::kUnavailable);
}

// Regression: a prompt waited longer than a lease for its turn at a busy prefill worker, and its
// fetch failed.
TEST_F(EngineThreadTest, WaitsForAPromptThatTakesLongerThanALease) {
  TestWorker patient({.name = "d1",
                      .make_core = decode::core_factory({}),
                      .kv_lease = std::chrono::milliseconds(50)});
  GenerationRequest fetched = patient.request({.id = 1, .kv = KvMode::kFetch});
  fetched.peer = prefill.address();
  ASSERT_TRUE(patient.thread().submit(std::move(fetched)));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ASSERT_TRUE(
      prefill.thread().submit(prefill.request({.id = 1, .kv = KvMode::kOffer, .max_tokens = 1})));
  EXPECT_GT(patient.expect<KvFetched>().bytes, 0U);
}

TEST_F(EngineThreadTest, GivesItsLastSequenceToTheOfferThatIsFetched) {
  ASSERT_TRUE(
      prefill.thread().submit(prefill.request({.id = 1, .kv = KvMode::kOffer, .max_tokens = 1})));
  prefill.expect<TokenOutput>();  // Its rows stay, because they are never fetched.
  GenerationRequest second = prefill.request({.id = 2, .kv = KvMode::kOffer, .max_tokens = 1});
  second.transfer = {3, 4};
  ASSERT_TRUE(prefill.thread().submit(std::move(second)));
  GenerationRequest fetched = decode.request({.id = 1, .kv = KvMode::kFetch});
  fetched.transfer = {3, 4};
  fetched.peer = prefill.address();
  ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
  EXPECT_EQ(prefill.expect<TokenOutput>().request, RequestId{2});
  EXPECT_GT(decode.expect<KvFetched>().bytes, 0U);
}

// A decode worker without free sequences, and a prompt that it fetches once it has some.
struct BusyDecodeTest : EngineThreadTest {
  void SetUp() override {
    for (uint64_t id = 1; id <= 2; ++id) {  // These are never offered.
      submit_fetch(id, {9, 8 + id});
    }
    submit_fetch(3, TestWorker::Ask().transfer);
  }
  void submit_fetch(uint64_t id, TransferId transfer) {
    GenerationRequest fetched = decode.request({.id = id, .kv = KvMode::kFetch});
    fetched.transfer = transfer;
    fetched.peer = hasty.address();
    ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
  }

  TestWorker hasty{{.name = "p1",
                    .make_core = prefill::core_factory({.chunk_tokens = 8}),
                    .kv_lease = std::chrono::seconds(1)}};
};

// Regression: the lease of a prompt's KV expired while its request queued, so it was computed
// twice.
TEST_F(BusyDecodeTest, KeepsTheRowsOfARequestThatQueuesForLongerThanTheirLease) {
  ASSERT_TRUE(
      hasty.thread().submit(hasty.request({.id = 1, .kv = KvMode::kOffer, .max_tokens = 1})));
  hasty.expect<TokenOutput>();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  decode.thread().cancel(RequestId{1});
  EXPECT_EQ(decode.expect<KvFetched>().request, RequestId{3});
}

TEST_F(BusyDecodeTest, FreesTheRowsOfARequestThatLeavesTheQueueAtOnce) {
  ASSERT_TRUE(
      hasty.thread().submit(hasty.request({.id = 1, .kv = KvMode::kOffer, .max_tokens = 1})));
  hasty.expect<TokenOutput>();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // Its own lease has expired.
  hasty.thread().drain();
  decode.thread().cancel(RequestId{3});
  hasty.expect<WorkerDrained>();  // Otherwise only after the renewed lease, in a minute.
}

TEST_F(EngineThreadTest, IsDrainedWhenACancelledFetchHasEnded) {
  GenerationRequest fetched = decode.request({.id = 1, .kv = KvMode::kFetch});
  fetched.peer = prefill.address();
  ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
  decode.thread().cancel(RequestId{1});
  // A request whose client left gets no output. The drain waits for its rows.
  decode.thread().drain();
  decode.expect<WorkerDrained>();
}

TEST_F(EngineThreadTest, StopsAtAStopStringAndHidesIt) {
  ASSERT_TRUE(decode.thread().submit(decode.request({.id = 1})));
  const std::string alone = decode.text(8);
  GenerationRequest stopped = decode.request({.id = 2});
  stopped.stop.strings = {alone.substr(3, 2)};
  ASSERT_TRUE(decode.thread().submit(std::move(stopped)));
  std::string text;
  TokenOutput last;
  do {
    last = decode.expect<TokenOutput>();
    text += last.text;
  } while (last.finish == FinishReason::kNone && !HasFailure());
  EXPECT_EQ(last.finish, FinishReason::kStop);
  EXPECT_EQ(text, alone.substr(0, alone.find(alone.substr(3, 2))));
}

TEST_F(EngineThreadTest, NoStopStringEndsAGenerationBeforeMinTokens) {
  ASSERT_TRUE(decode.thread().submit(decode.request({.id = 1, .max_tokens = 40})));
  const std::string alone = decode.text(40);
  // The fake engine's tokens are bytes; the last one is the stop string, wherever else it is.
  GenerationRequest stopped = decode.request({.id = 2, .max_tokens = 40});
  stopped.stop.strings = {alone.substr(3, 1)};
  stopped.stop.min_tokens = 12;
  ASSERT_TRUE(decode.thread().submit(std::move(stopped)));
  const size_t end = alone.find(alone.substr(3, 1), 12);
  std::string text;
  TokenOutput last;
  do {
    last = decode.expect<TokenOutput>();
    text += last.text;
  } while (last.finish == FinishReason::kNone && !HasFailure());
  EXPECT_EQ(text, alone.substr(0, end));
}

TEST_F(EngineThreadTest, ChoosesNoStopTokenBeforeMinTokens) {
  ASSERT_TRUE(decode.thread().submit(decode.request({.id = 1})));
  StopParams stop{.min_tokens = 6};
  for (int i = 0; i < 8; ++i) {
    stop.token_ids.push_back(decode.expect<TokenOutput>().token.token);
  }
  ASSERT_TRUE(decode.thread().submit(decode.request({.id = 2, .max_tokens = 40, .stop = stop})));
  for (int i = 0; i < 6; ++i) {
    const auto output = decode.expect<TokenOutput>();
    EXPECT_EQ(std::count(stop.token_ids.begin(), stop.token_ids.end(), output.token.token), 0) << i;
    EXPECT_TRUE(output.shown);
    ASSERT_EQ(output.finish, FinishReason::kNone) << i;
  }
}

TEST_F(EngineThreadTest, StopsBeforeMinTokensWhereNothingElseCanFollow) {
  StopParams stop{.min_tokens = 6};
  for (Token token = 0; token < static_cast<Token>(engine::kFakeVocabulary); ++token) {
    stop.token_ids.push_back(token);
  }
  ASSERT_TRUE(decode.thread().submit(decode.request({.id = 1, .stop = stop})));
  const auto output = decode.expect<TokenOutput>();
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_FALSE(output.shown);
}

TEST_F(EngineThreadTest, GivesEachChoiceItsOwnText) {
  ASSERT_TRUE(decode.thread().submit(decode.request({.id = 1, .choices = 2})));
  std::string texts[2];
  for (int i = 0; i < 16; ++i) {
    const auto output = decode.expect<TokenOutput>();
    texts[output.choice] += output.text;
  }
  EXPECT_NE(texts[0], texts[1]);
}

}  // namespace
}  // namespace pdjob::worker
