// Core, engine and KV endpoint together, with the fake engine: what a prefill worker computed, its
// decode worker continues.
#include "worker/engine_thread.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "common/channel.h"
#include "common/real_clock.h"
#include "decode/decode_worker.h"
#include "engine/fake_engine.h"
#include "prefill/prefill_worker.h"

namespace pdjob::worker {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);
constexpr TransferId kTransfer{1, 2};

// A worker without HTTP: requests in, outputs out.
class TestWorker {
 public:
  TestWorker(const std::string& name, const CoreFactory& make_core, Duration kv_lease = kPatience) {
    engine_ = *engine::open_engine({.kind = engine::EngineKind::kFake,
                                    .sequences = 2,
                                    .tokens_per_sequence = 128,
                                    .batch_tokens = 32,
                                    .fake_delay_per_token = std::chrono::microseconds(100)});
    const EngineSize size{.sequences = 2, .rows_per_sequence = 128, .batch_tokens = 32};
    thread_ = std::make_unique<EngineThread>(*engine_, make_core(size), kv_lease,
                                             [this](OutputBatch batch) {
                                               for (Output& output : batch.outputs) {
                                                 outputs_.push_always(std::move(output));
                                               }
                                             });
    endpoint_ = *kvtransfer::KvEndpoint::start({.engine_id = name,
                                                .fingerprint = {{"model", "fake"}},
                                                .sink = [this](kvtransfer::EndpointEvent event) {
                                                  thread_->on_endpoint_event(std::move(event));
                                                }});
    thread_->start(*endpoint_);
  }
  ~TestWorker() {
    thread_->stop();
    endpoint_.reset();
  }

  EngineThread& thread() { return *thread_; }
  const kvtransfer::EndpointAddress& address() const { return endpoint_->address(); }

  GenerationRequest request(uint64_t id, KvMode kv, int32_t max_tokens = 8, uint32_t choices = 1,
                            const StopParams& stop = {}) const {
    GenerationRequest made{.id = RequestId{id}, .stop = stop, .ignore_eos = true, .kv = kv};
    made.stop.max_tokens = max_tokens;
    for (const char c : std::string("the quick brown fox jumps over the lazy dog")) {
      made.prompt.push_back(c);
    }
    for (uint32_t choice = 0; choice < choices; ++choice) {
      made.samplers.push_back(
          *engine::open_sampler(*engine_, {.seed = 7 + choice}, made.prompt, made.stop));
    }
    made.transfer = kTransfer;
    return made;
  }

  // The next output, which must be a `Wanted`: else a default one, and the test fails.
  template <class Wanted>
  Wanted expect() {
    if (next_ == taken_.size()) {
      taken_.clear();
      next_ = 0;
      outputs_.wait_and_drain(taken_, real_now() + kPatience);
    }
    if (next_ < taken_.size() && std::holds_alternative<Wanted>(taken_[next_])) {
      return std::get<Wanted>(std::move(taken_[next_++]));
    }
    ADD_FAILURE() << "got "
                  << (next_ < taken_.size() ? static_cast<int>(taken_[next_].index()) : -1);
    return {};
  }
  std::string text(int32_t tokens) {
    std::string text;
    for (int32_t i = 0; i < tokens; ++i) {
      text += expect<TokenOutput>().text;
    }
    return text;
  }

 private:
  std::unique_ptr<engine::Engine> engine_;
  Channel<Output> outputs_{1024};
  std::vector<Output> taken_;
  size_t next_ = 0;
  std::unique_ptr<EngineThread> thread_;
  std::unique_ptr<kvtransfer::KvEndpoint> endpoint_;
};

struct EngineThreadTest : testing::Test {
  TestWorker prefill{"p0", prefill::core_factory({.chunk_tokens = 8})};
  TestWorker decode{"d0", decode::core_factory({})};
};

TEST_F(EngineThreadTest, ContinuesWhatAnotherWorkerComputed) {
  ASSERT_TRUE(decode.thread().submit(decode.request(1, KvMode::kLocal)));
  const std::string alone = decode.text(8);
  ASSERT_EQ(alone.size(), 8U);

  GenerationRequest fetched = decode.request(2, KvMode::kFetch);
  fetched.peer = prefill.address();
  ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
  ASSERT_TRUE(prefill.thread().submit(prefill.request(1, KvMode::kOffer, 1)));
  EXPECT_EQ(prefill.expect<TokenOutput>().finish, FinishReason::kLength);
  EXPECT_GT(decode.expect<KvFetched>().bytes, 0U);
  EXPECT_EQ(decode.text(8), alone);
}

TEST_F(EngineThreadTest, RefusesATransferThatIsUnderWay) {
  ASSERT_TRUE(prefill.thread().submit(prefill.request(1, KvMode::kOffer, 1)));
  ASSERT_TRUE(prefill.thread().submit(prefill.request(2, KvMode::kOffer, 1)));
  const auto refused = prefill.expect<RequestFailed>();
  EXPECT_EQ(refused.request, RequestId{2});
  EXPECT_EQ(refused.error.code, ErrorCode::kInvalidArgument);
}

// A prompt waited for its turn at a busy prefill worker for longer than a lease: its fetch failed.
TEST_F(EngineThreadTest, WaitsForAPromptThatTakesLongerThanALease) {
  TestWorker patient("d1", decode::core_factory({}), std::chrono::milliseconds(50));
  GenerationRequest fetched = patient.request(1, KvMode::kFetch);
  fetched.peer = prefill.address();
  ASSERT_TRUE(patient.thread().submit(std::move(fetched)));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ASSERT_TRUE(prefill.thread().submit(prefill.request(1, KvMode::kOffer, 1)));
  EXPECT_GT(patient.expect<KvFetched>().bytes, 0U);
}

TEST_F(EngineThreadTest, GivesItsLastSequenceToTheOfferThatIsFetched) {
  ASSERT_TRUE(prefill.thread().submit(prefill.request(1, KvMode::kOffer, 1)));
  prefill.expect<TokenOutput>();  // Its rows stay: nobody fetches them.
  GenerationRequest second = prefill.request(2, KvMode::kOffer, 1);
  second.transfer = {3, 4};
  ASSERT_TRUE(prefill.thread().submit(std::move(second)));
  GenerationRequest fetched = decode.request(1, KvMode::kFetch);
  fetched.transfer = {3, 4};
  fetched.peer = prefill.address();
  ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
  EXPECT_EQ(prefill.expect<TokenOutput>().request, RequestId{2});
  EXPECT_GT(decode.expect<KvFetched>().bytes, 0U);
}

// A decode worker without free sequences, and a prompt that it will fetch when it has some.
struct BusyDecodeTest : EngineThreadTest {
  void SetUp() override {
    for (uint64_t id = 1; id <= 2; ++id) {  // Nobody will ever offer these.
      submit_fetch(id, {9, id});
    }
    submit_fetch(3, kTransfer);
  }
  void submit_fetch(uint64_t id, TransferId transfer) {
    GenerationRequest fetched = decode.request(id, KvMode::kFetch);
    fetched.transfer = transfer;
    fetched.peer = hasty.address();
    ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
  }

  TestWorker hasty{"p1", prefill::core_factory({.chunk_tokens = 8}),
                   std::chrono::milliseconds(150)};
};

// The lease of a prompt's KV ended while its request queued: it was computed twice.
TEST_F(BusyDecodeTest, KeepsTheRowsOfARequestThatQueuesForLongerThanTheirLease) {
  ASSERT_TRUE(hasty.thread().submit(hasty.request(1, KvMode::kOffer, 1)));
  hasty.expect<TokenOutput>();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  decode.thread().cancel(RequestId{1});
  EXPECT_EQ(decode.expect<KvFetched>().request, RequestId{3});
}

TEST_F(BusyDecodeTest, FreesTheRowsOfARequestThatLeavesTheQueueAtOnce) {
  ASSERT_TRUE(hasty.thread().submit(hasty.request(1, KvMode::kOffer, 1)));
  hasty.expect<TokenOutput>();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // Its own lease is over.
  hasty.thread().drain();
  decode.thread().cancel(RequestId{3});
  hasty.expect<WorkerDrained>();  // Else when the renewed lease ends, in a minute.
}

TEST_F(EngineThreadTest, IsDrainedWhenACancelledFetchHasEnded) {
  GenerationRequest fetched = decode.request(1, KvMode::kFetch);
  fetched.peer = prefill.address();
  ASSERT_TRUE(decode.thread().submit(std::move(fetched)));
  decode.thread().cancel(RequestId{1});
  // Nothing is said of a request whose client left; the drain waits for its rows.
  decode.thread().drain();
  decode.expect<WorkerDrained>();
}

TEST_F(EngineThreadTest, StopsAtAStopStringAndHidesIt) {
  ASSERT_TRUE(decode.thread().submit(decode.request(1, KvMode::kLocal)));
  const std::string alone = decode.text(8);
  GenerationRequest stopped = decode.request(2, KvMode::kLocal);
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

TEST_F(EngineThreadTest, ChoosesNoStopTokenBeforeMinTokens) {
  ASSERT_TRUE(decode.thread().submit(decode.request(1, KvMode::kLocal)));
  StopParams stop{.min_tokens = 6};
  for (int i = 0; i < 8; ++i) {
    stop.token_ids.push_back(decode.expect<TokenOutput>().token.token);
  }
  ASSERT_TRUE(decode.thread().submit(decode.request(2, KvMode::kLocal, 40, 1, stop)));
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
  ASSERT_TRUE(decode.thread().submit(decode.request(1, KvMode::kLocal, 8, 1, stop)));
  const auto output = decode.expect<TokenOutput>();
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_FALSE(output.shown);
}

TEST_F(EngineThreadTest, GivesEachChoiceItsOwnText) {
  ASSERT_TRUE(decode.thread().submit(decode.request(1, KvMode::kLocal, 8, 2)));
  std::string texts[2];
  for (int i = 0; i < 16; ++i) {
    const auto output = decode.expect<TokenOutput>();
    texts[output.choice] += output.text;
  }
  EXPECT_NE(texts[0], texts[1]);
}

}  // namespace
}  // namespace pdjob::worker
