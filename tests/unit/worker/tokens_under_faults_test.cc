// Tokens under faults. A fault damages the KV of a prompt in any of its chunks. The decode worker
// then answers with the tokens of one worker alone, or with an error. The next request succeeds. It
// runs with the fake engine, whose tokens depend on every byte of the KV, and with a real model. KV
// is in host memory, or in that of the GPU's double.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "decode/decode_worker.h"
#include "prefill/prefill_worker.h"
#include "tests/support/fault_transport.h"
#include "tests/unit/engine/gpu_model.h"
#include "tests/unit/engine/test_model.h"
#include "tests/unit/kvtransfer/fault_plans.h"
#include "tests/unit/kvtransfer/kv_fixture.h"
#include "tests/unit/worker/test_worker.h"

namespace pdjob::worker {
namespace {

using kvtransfer::FaultKind;
using kvtransfer::FaultPlan;
using kvtransfer::TransportKind;

constexpr uint32_t kChunkTokens = 12;
constexpr uint32_t kChunks = 4;  // The least number of chunks of the prompt below; each is a range.
constexpr std::string_view kStory =
    "The river rose in the night, and in the morning the miller found a boat in his orchard, "
    "an oar in his well, and on his doorstep, wet through and very polite, a heron that asked "
    "him the way to the sea, for it had lost it in the dark. ";
constexpr uint32_t kTokens = 8;

bool does_no_harm(FaultKind kind) { return kind == FaultKind::kNone || kind == FaultKind::kDelay; }

struct Setup {
  engine::EngineKind engine;
  TransportKind transport;
  bool prefill_in_gpu = false;
  bool decode_in_gpu = false;
};

class TokensUnderFaults : public testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    if (GetParam().engine == engine::EngineKind::kLlama && engine::test_model().empty()) {
      GTEST_SKIP() << engine::kNoTestModel;
    }
    TestWorker::Options prefill =
        options("p0", prefill::core_factory({.chunk_tokens = kChunkTokens}));
    TestWorker::Options decode = options("d0", decode::core_factory({}));
    prefill.engine.gpu = GetParam().prefill_in_gpu;
    decode.engine.gpu = GetParam().decode_in_gpu;
    const engine::UnifiedMemory unified;
    prefill_ = std::make_unique<TestWorker>(prefill);
    decode_ = std::make_unique<TestWorker>(decode);
    alone_ =
        std::make_unique<TestWorker>(options("d1", decode::core_factory({.prefix_cache = false})));
  }

  static TestWorker::Options options(const std::string& name, CoreFactory make_core) {
    engine::EngineConfig engine;
    if (engine.kind = GetParam().engine; engine.kind == engine::EngineKind::kLlama) {
      engine = engine::test_config();
    }
    engine.sequences = 2;
    engine.tokens_per_sequence = 512;
    engine.cuda.library = PDJOB_FAKE_CUDART;
    engine.cpu_computes_in_gpu_memory = true;
    // A chunk takes longer than its transfer, so each chunk is a range.
    engine.fake_delay_per_token = std::chrono::microseconds(200);
    return {.name = name,
            .make_core = std::move(make_core),
            .engine = engine,
            .kv = {.transport = GetParam().transport,
                   // A stalled transfer is given up after twice this time.
                   .connect_timeout = std::chrono::milliseconds(400),
                   .nccl = kvtransfer::fake_nccl()},
            .open_transport = kvtransfer::with_faults(kvtransfer::plan_of)};
  }

  // Every prompt differs: stale rows of the last one must be wrong.
  TestWorker::Ask ask(KvMode kv, uint32_t max_tokens, TransferId transfer = {}) const {
    const size_t begin = (more_.empty() ? number_ : number_ - 1) * 7 % kStory.size();
    return {
        .id = number_,
        .kv = kv,
        .prompt = std::string(kStory.substr(begin)) + std::string(kStory.substr(0, begin)) + more_,
        .max_tokens = static_cast<int32_t>(max_tokens),
        .transfer = transfer};
  }

  // An answer without tokens is an error.
  struct Answer {
    std::vector<Token> tokens;
    bool fetched = false;
  };
  static Answer answer_of(TestWorker& worker) {
    Answer answer;
    while (answer.tokens.size() < kTokens) {
      const Output output = worker.next();
      if (std::holds_alternative<KvFetched>(output)) {
        answer.fetched = true;
      } else if (const auto* token = std::get_if<TokenOutput>(&output)) {
        answer.tokens.push_back(token->token.token);
      } else {
        EXPECT_NE(std::get<RequestFailed>(output).error.message, "");
        break;
      }
    }
    return answer;
  }

  // Returns the decode worker's answer to a prompt whose transfer has this fault. Checks that it is
  // right, or an error.
  Answer transfer(FaultPlan plan) {
    ++number_;
    EXPECT_TRUE(alone_->thread().submit(alone_->request(ask(KvMode::kLocal, kTokens))));
    const std::vector<Token> expected = answer_of(*alone_).tokens;
    const TransferId transfer = kvtransfer::transfer_with(plan, number_);
    // The grant comes first, so that each chunk is pushed separately.
    GenerationRequest fetched = decode_->request(ask(KvMode::kFetch, kTokens, transfer));
    fetched.peer = prefill_->address();
    EXPECT_TRUE(decode_->thread().submit(std::move(fetched)));
    EXPECT_TRUE(prefill_->thread().submit(prefill_->request(ask(KvMode::kOffer, 1, transfer))));
    // The prefill may stop early if its KV has lost its receiver.
    const Output prefilled = prefill_->next();
    EXPECT_TRUE(std::holds_alternative<TokenOutput>(prefilled) ||
                std::holds_alternative<RequestFailed>(prefilled));
    Answer got = answer_of(*decode_);
    EXPECT_EQ(got.fetched, !got.tokens.empty());
    EXPECT_TRUE(!got.fetched || got.tokens == expected);
    return got;
  }

  // Only the first range where other ranges show nothing new. The real model is slow, and pinned
  // memory takes the ways of the other setups.
  static uint32_t ranges() {
    const auto& setup = GetParam();
    const bool staged = setup.prefill_in_gpu != setup.decode_in_gpu ||
                        (setup.prefill_in_gpu && setup.transport == TransportKind::kTcp);
    return setup.engine == engine::EngineKind::kLlama || staged ? 1 : kChunks;
  }

  // Faults of KV in a GPU's memory look the same with any engine, so the fake one suffices.
  static bool is_shown(FaultKind kind) {
    const bool in_gpu = GetParam().prefill_in_gpu || GetParam().decode_in_gpu;
    return does_no_harm(kind) || GetParam().engine == engine::EngineKind::kFake || !in_gpu;
  }

  std::unique_ptr<TestWorker> prefill_, decode_, alone_;
  uint64_t number_ = 0;
  std::string more_;  // If set, it extends the last prompt, so that the next prompt continues it.
};

TEST_P(TokensUnderFaults, AreThoseOfOneWorkerOrAnError) {
  ASSERT_GT(prefill_->request(ask(KvMode::kLocal, 1)).prompt.size(), (kChunks - 1) * kChunkTokens);
  for (int kind = 0; kind <= static_cast<int>(FaultKind::kLoseArrival); ++kind) {
    for (uint32_t range = 0; range < ranges() && !HasFailure(); ++range) {
      SCOPED_TRACE(testing::Message() << "fault " << kind << " in range " << range);
      const FaultPlan plan{.kind = static_cast<FaultKind>(kind), .range = range};
      if (!is_shown(plan.kind)) {
        continue;
      }
      const bool fetched = transfer(plan).fetched;
      if (does_no_harm(plan.kind)) {
        EXPECT_TRUE(fetched);
        // A chunk that is quicker than the transfer before it shares a range.
      } else if (range == 0) {
        EXPECT_FALSE(fetched);
      }
      // A link that stalled within a payload is given up a little later.
      EXPECT_TRUE(transfer({}).fetched || transfer({}).fetched || transfer({}).fetched);
    }
  }
}

TEST_P(TokensUnderFaults, AreThoseOfOneWorkerAlsoFromRowsThatWereThereAlready) {
  EXPECT_TRUE(transfer({}).fetched);
  prefill_->wait_idle();
  more_ = "And then it told him, for a fee, of the moon.";
  EXPECT_TRUE(transfer({}).fetched);
  EXPECT_GT(prefill_->rows_reused(), (kChunks - 1) * kChunkTokens);
  for (const bool again : {false, true}) {  // The first time computes: fetched rows are not kept.
    ASSERT_TRUE(decode_->thread().submit(decode_->request(ask(KvMode::kLocal, kTokens))));
    ASSERT_TRUE(alone_->thread().submit(alone_->request(ask(KvMode::kLocal, kTokens))));
    EXPECT_EQ(answer_of(*decode_).tokens, answer_of(*alone_).tokens);
    EXPECT_EQ(decode_->rows_reused() > prefill_->rows_reused(), again);
  }
}

std::string name_of_setup(const testing::TestParamInfo<Setup>& info) {
  return std::string(info.param.engine == engine::EngineKind::kFake ? "Fake" : "Model") +
         kvtransfer::name_of(info.param.transport) + (info.param.prefill_in_gpu ? "FromGpu" : "") +
         (info.param.decode_in_gpu ? "ToGpu" : "");
}

INSTANTIATE_TEST_SUITE_P(
    All, TokensUnderFaults,
    testing::Values(Setup{engine::EngineKind::kFake, TransportKind::kShm},
                    Setup{engine::EngineKind::kFake, TransportKind::kTcp},
                    Setup{engine::EngineKind::kFake, TransportKind::kNccl},
                    Setup{engine::EngineKind::kFake, TransportKind::kAuto, true,
                          true},  // cuda_ipc; `alone_` is on the host.
                    Setup{engine::EngineKind::kFake, TransportKind::kTcp, true, true},
                    Setup{engine::EngineKind::kFake, TransportKind::kNccl, true, true},
                    Setup{engine::EngineKind::kFake, TransportKind::kNccl, true, false},
                    Setup{engine::EngineKind::kFake, TransportKind::kNccl, false, true},
                    Setup{engine::EngineKind::kFake, TransportKind::kAuto, true, false},
                    Setup{engine::EngineKind::kFake, TransportKind::kAuto, false, true},
                    Setup{engine::EngineKind::kLlama, TransportKind::kShm},
                    Setup{engine::EngineKind::kLlama, TransportKind::kTcp},
                    Setup{engine::EngineKind::kLlama, TransportKind::kAuto, true, true},
                    Setup{engine::EngineKind::kLlama, TransportKind::kAuto, true, false},
                    Setup{engine::EngineKind::kLlama, TransportKind::kAuto, false, true}),
    name_of_setup);

}  // namespace
}  // namespace pdjob::worker
