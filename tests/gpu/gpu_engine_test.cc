// The engine of the real model with its KV in a GPU's memory, and that KV over cuda_ipc between two
// processes. `./dev gpu` runs it on the real GPU, which also computes. Everywhere else it runs on
// the double of tests/support. The CPU then computes in the double's memory, and every logit is the
// host engine's.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "decode/decode_worker.h"
#include "gpu/gpu.h"
#include "prefill/prefill_worker.h"
#include "tests/unit/engine/gpu_model.h"
#include "tests/unit/engine/test_model.h"
#include "tests/unit/kvtransfer/forked_peer.h"
#include "tests/unit/worker/test_worker.h"

namespace pdjob::engine {
namespace {

using Logits = std::vector<float>;

constexpr uint32_t kSteps = 4;
// How far other kernels may move the logits, as a share of what another last token does.
constexpr float kTolerance = 0.25F;
constexpr std::string_view kPrompt =
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Germany is "
    "Berlin. The capital of Spain is";

// Calls a function of the double, which is loaded. The double is not linked: beside the real CUDA
// runtime, its functions would have two meanings.
int ask_double(const char* function) {
  void* const library = ::dlopen(PDJOB_FAKE_CUDART, RTLD_LAZY | RTLD_NOLOAD);
  PDJOB_CHECK(library != nullptr);
  return reinterpret_cast<int (*)()>(::dlsym(library, function))();
}

std::unique_ptr<Engine> open(const EngineConfig& config) {
  const UnifiedMemory unified;
  auto engine = open_engine(config);
  PDJOB_CHECK(engine.has_value(), engine.error().message);
  return std::move(*engine);
}

Logits step(Engine& engine, uint32_t sequence, std::span<const Token> tokens) {
  const StepItem item{SequenceId{sequence}, tokens, true};
  PDJOB_CHECK(engine.step({&item, 1}));
  const auto row = engine.logits(SequenceId{sequence});
  return {row.begin(), row.end()};
}

Token most_likely(const Logits& row) {
  return static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
}

// The root of the mean square: one far logit of 49,152 says little.
float distance(const Logits& a, const Logits& b) {
  float squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(squares / static_cast<float>(a.size()));
}

// Returns the logits after each of `tokens`.
std::vector<Logits> decode(Engine& engine, uint32_t sequence, std::span<const Token> tokens) {
  std::vector<Logits> rows;
  for (const Token& token : tokens) {
    rows.push_back(step(engine, sequence, {&token, 1}));
  }
  return rows;
}

class GpuEngine : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!test_model().empty()) {
      gpu_ = Gpu::open(in_gpu({}).cuda.library, 0)->release();
      on_gpu_ = open(in_gpu(test_config())).release();
      on_host_ = open(test_config()).release();
      prompt_ = on_host_->vocabulary().tokenize(kPrompt, false, false);
      std::vector<Token> other = prompt_;
      other.back() = prompt_.front();
      of_another_token_ = distance(step(*on_host_, 0, prompt_), step(*on_host_, 1, other));
    }
  }
  static void TearDownTestSuite() {
    delete on_gpu_;
    delete on_host_;
    delete gpu_;
  }
  void SetUp() override {
    if (on_gpu_ == nullptr) {
      GTEST_SKIP() << kNoTestModel;
    }
    for (uint32_t sequence = 0; sequence < on_gpu_->config().sequences; ++sequence) {
      on_gpu_->clear(SequenceId{sequence});
      on_host_->clear(SequenceId{sequence});
    }
  }

  static uint32_t rows() { return static_cast<uint32_t>(prompt_.size()); }

  // Copies the prompt's rows between memories of any kind.
  static void copy(const KvRegion& from, const KvRegion& to) {
    std::vector<GpuCopy> copies;
    for (size_t window = 0; window < from.windows.size(); ++window) {
      copies.push_back({.to = to.windows[window].base,
                        .from = from.windows[window].base,
                        .bytes = size_t{rows()} * from.windows[window].row_bytes});
    }
    ASSERT_TRUE(gpu_->copy(copies));
  }

  // Returns the sequence's windows as seen by a process that was given the descriptor.
  static KvRegion windows_in(const GpuMemory& imported, KvRegion region) {
    for (KvWindow& window : region.windows) {
      window.base = imported.base() + window.shared_offset;
    }
    return region;
  }

  // Computes the prompt on `prefill` and continues on `decoder`. The result is the same as on one
  // engine.
  static void continue_elsewhere(Engine& prefill, Engine& decoder) {
    const Token first = most_likely(step(prefill, 0, prompt_));
    ASSERT_TRUE(decoder.reserve(SequenceId{1}, rows()));
    copy(prefill.kv_region(SequenceId{0}), decoder.kv_region(SequenceId{1}));
    const Logits here = step(prefill, 0, {&first, 1});
    expect_near(step(decoder, 1, {&first, 1}), here);
  }

  // The double computes on the CPU: there, logits are equal.
  static void expect_near(const Logits& got, const Logits& expected) {
    const float apart = distance(got, expected);
    std::printf("gpu: logits of a GPU and a CPU are %.3f apart, those of another token %.3f\n",
                static_cast<double>(apart), static_cast<double>(of_another_token_));
    EXPECT_LE(apart, gpu_is_real() ? kTolerance * of_another_token_ : 0);
  }

  static Gpu* gpu_;
  static Engine *on_gpu_, *on_host_;
  static std::vector<Token> prompt_;
  static float of_another_token_;
};
Gpu* GpuEngine::gpu_ = nullptr;
Engine* GpuEngine::on_gpu_ = nullptr;
Engine* GpuEngine::on_host_ = nullptr;
std::vector<Token> GpuEngine::prompt_;
float GpuEngine::of_another_token_ = 0;

TEST_F(GpuEngine, PredictsAsTheHostDoes) {
  expect_near(step(*on_gpu_, 0, prompt_), step(*on_host_, 0, prompt_));
}

TEST_F(GpuEngine, AllWindowsLieInOneMemoryThatHasADescriptor) {
  const uint32_t sequences = on_gpu_->config().sequences;
  for (uint32_t sequence = 0; sequence < sequences; ++sequence) {
    const KvRegion& region = on_gpu_->kv_region(SequenceId{sequence});
    EXPECT_EQ(region.device, 0U);
    EXPECT_EQ(region.shared_fd, on_gpu_->kv_region(SequenceId{0}).shared_fd);
    for (const KvWindow& window : region.windows) {
      EXPECT_LE(window.shared_offset + uint64_t{region.rows_max} * window.row_bytes,
                region.shared_bytes);
    }
  }
  EXPECT_FALSE(on_host_->kv_region(SequenceId{0}).device);
}

TEST_F(GpuEngine, RowsWrittenThroughTheDescriptorContinueBitForBit) {
  const Token first = most_likely(step(*on_gpu_, 0, prompt_));
  const KvRegion& target = on_gpu_->kv_region(SequenceId{3});
  ASSERT_TRUE(on_gpu_->reserve(SequenceId{3}, rows()));
  const auto imported = gpu_->import(target.shared_fd, target.shared_bytes);
  ASSERT_TRUE(imported) << imported.error().message;
  copy(on_gpu_->kv_region(SequenceId{0}), windows_in(*imported, target));
  const std::vector<Token> tokens(kSteps, first);
  EXPECT_EQ(decode(*on_gpu_, 3, tokens), decode(*on_gpu_, 0, tokens));
}

TEST_F(GpuEngine, RowsAreThereWhenAStepReturns) {
  // The step asks for no logits, because their computation would be waited for.
  const StepItem item{SequenceId{2}, prompt_, false};
  ASSERT_TRUE(on_gpu_->step({&item, 1}));
  ASSERT_TRUE(on_gpu_->reserve(SequenceId{1}, rows()));
  copy(on_gpu_->kv_region(SequenceId{2}), on_gpu_->kv_region(SequenceId{1}));
  const std::vector<Token> tokens(kSteps, prompt_.front());
  EXPECT_EQ(decode(*on_gpu_, 1, tokens), decode(*on_gpu_, 2, tokens));
}

TEST_F(GpuEngine, AForkContinuesLikeItsOrigin) {
  const Token first = most_likely(step(*on_gpu_, 1, prompt_));
  ASSERT_TRUE(on_gpu_->fork(SequenceId{1}, SequenceId{2}));
  EXPECT_EQ(on_gpu_->length(SequenceId{2}), rows());
  const std::vector<Token> tokens(kSteps, first);
  EXPECT_EQ(decode(*on_gpu_, 2, tokens), decode(*on_gpu_, 1, tokens));
}

TEST_F(GpuEngine, AClearedSequenceStartsAnew) {
  const Logits fresh = step(*on_gpu_, 0, prompt_);
  decode(*on_gpu_, 0, std::vector<Token>(kSteps, prompt_.back()));
  on_gpu_->clear(SequenceId{0});
  EXPECT_EQ(step(*on_gpu_, 0, prompt_), fresh);
}

TEST_F(GpuEngine, RowsOfTheGpuContinueOnTheHost) { continue_elsewhere(*on_gpu_, *on_host_); }

TEST_F(GpuEngine, RowsOfTheHostContinueOnTheGpu) { continue_elsewhere(*on_host_, *on_gpu_); }

TEST_F(GpuEngine, NothingIsLeftOfAnEngine) {
  if (gpu_is_real()) {
    GTEST_SKIP() << "only the double counts what is left";
  }
  const int objects = ask_double("fakecudart_objects");
  step(*open(in_gpu(test_config())), 0, prompt_);
  EXPECT_EQ(ask_double("fakecudart_objects"), objects);
  EXPECT_EQ(ask_double("fakecudart_violations"), 0);
}

TEST_F(GpuEngine, KvInItsMemoryWantsAllLayersThere) {
  if (!gpu_is_real()) {
    GTEST_SKIP() << "libllama computes on the CPU here";
  }
  EngineConfig config = in_gpu(test_config());
  config.gpu_layers = 2;
  const auto refused = open_engine(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  config.gpu = false;
  EXPECT_TRUE(open_engine(config));
}

}  // namespace
}  // namespace pdjob::engine

namespace pdjob::worker {
namespace {

constexpr uint32_t kTokens = 12;
constexpr std::string_view kStory =
    "The river rose in the night, and in the morning the miller found a boat in his orchard, an "
    "oar in his well, and on his doorstep, wet through and very polite, a heron";

TestWorker::Options options(const std::string& name, CoreFactory make_core) {
  const engine::EngineConfig engine = engine::in_gpu(engine::test_config());
  kvtransfer::KvTransferConfig kv;
  kv.nccl.cuda.library = engine.cuda.library;
  return {.name = name, .make_core = std::move(make_core), .engine = engine, .kv = kv};
}

TestWorker::Ask ask(KvMode kv, int32_t max_tokens) {
  return {.kv = kv, .prompt = std::string(kStory), .max_tokens = max_tokens};
}

// Computes the prompt in one chunk, as the test does. Keeps its KV until the test ends the process.
void prefill_for_a_peer(kvtransfer::Pipe& to_test) {
  const engine::UnifiedMemory unified;
  TestWorker worker(options("prefill", prefill::core_factory({})));
  to_test.say(worker.address());
  PDJOB_CHECK(worker.thread().submit(worker.request(ask(KvMode::kOffer, 1))));
  ::pause();
}

std::vector<Token> tokens_of(TestWorker& worker) {
  std::vector<Token> tokens;
  while (tokens.size() < kTokens) {
    tokens.push_back(worker.expect<TokenOutput>().token.token);
  }
  return tokens;
}

TEST(GpuWorkers, KvThatAnotherProcessComputedGivesTheTokensOfOne) {
  if (engine::test_model().empty()) {
    GTEST_SKIP() << engine::kNoTestModel;
  }
  kvtransfer::ForkedPeer peer(
      [](kvtransfer::Pipe& to_test, kvtransfer::Pipe&) { prefill_for_a_peer(to_test); });
  const engine::UnifiedMemory unified;
  TestWorker worker(options("decode", decode::core_factory({})));
  GenerationRequest alone = worker.request(ask(KvMode::kLocal, kTokens));
  ASSERT_TRUE(worker.thread().submit(std::move(alone)));
  const std::vector<Token> expected = tokens_of(worker);
  GenerationRequest fetched = worker.request(ask(KvMode::kFetch, kTokens));
  fetched.peer = peer.to_test.hear_address();
  ASSERT_TRUE(worker.thread().submit(std::move(fetched)));
  EXPECT_EQ(worker.expect<KvFetched>().transport, "cuda_ipc");
  EXPECT_EQ(tokens_of(worker), expected);
}

}  // namespace
}  // namespace pdjob::worker
