#include "engine/fake_engine.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/shared_kv.h"

namespace pdjob::engine {
namespace {

std::unique_ptr<Engine> open(bool shared = false) {
  return open_engine({.kind = EngineKind::kFake,
                      .sequences = 4,
                      .tokens_per_sequence = 100,
                      .batch_tokens = 64,
                      .shared_kv = shared})
      .value();
}

Status step(Engine& engine, uint32_t sequence, std::vector<Token> tokens) {
  const StepItem item{SequenceId{sequence}, tokens, true};
  return engine.step({&item, 1});
}

std::vector<float> logits(Engine& engine, uint32_t sequence) {
  const auto row = engine.logits(SequenceId{sequence});
  return {row.begin(), row.end()};
}

std::vector<float> logits_of(Engine& engine, uint32_t sequence, std::vector<Token> tokens) {
  EXPECT_TRUE(step(engine, sequence, std::move(tokens)).has_value());
  return logits(engine, sequence);
}

TEST(FakeEngine, SaysSo) {
  const auto engine = open();
  EXPECT_EQ(engine->facts().name, "fake");
  EXPECT_EQ(engine->facts().kv_bytes_per_token, 512U);
  EXPECT_EQ(engine->config().tokens_per_sequence, 128U);
}

TEST(FakeEngine, LogitsDependOnTheWholeHistoryOnly) {
  const auto engine = open();
  const auto whole = logits_of(*engine, 0, {1, 2, 3, 4, 5});
  logits_of(*engine, 1, {1, 2});
  EXPECT_EQ(logits_of(*engine, 1, {3, 4, 5}), whole);
  EXPECT_NE(logits_of(*engine, 2, {9, 2, 3, 4, 5}), whole);
  EXPECT_NE(logits_of(*engine, 3, {2, 1, 3, 4, 5}), whole);
  engine->clear(SequenceId{2});
  EXPECT_EQ(logits_of(*engine, 2, {1, 2, 3, 4, 5}), whole);
}

TEST(FakeEngine, RowsHandedOverContinueTheText) {
  const auto prefill = open();
  const auto decode = open();
  logits_of(*prefill, 0, {10, 20, 30});
  ASSERT_TRUE(decode->reserve(SequenceId{2}, 3).has_value());
  copy_rows(prefill->kv_region(SequenceId{0}), decode->kv_region(SequenceId{2}), 3);
  EXPECT_EQ(decode->length(SequenceId{2}), 3U);
  EXPECT_EQ(logits_of(*decode, 2, {40}), logits_of(*prefill, 0, {40}));
}

TEST(FakeEngine, ADamagedRowChangesTheText) {
  const auto engine = open();
  const auto sound = logits_of(*engine, 0, {10, 20, 30});
  ASSERT_TRUE(engine->fork(SequenceId{0}, SequenceId{1}).has_value());
  ASSERT_TRUE(engine->fork(SequenceId{0}, SequenceId{2}).has_value());
  KvRegion region = engine->kv_region(SequenceId{2});
  region.windows[5].base[64 + 7] ^= std::byte{1};
  const auto continued = logits_of(*engine, 0, {40});
  EXPECT_NE(continued, sound);
  EXPECT_EQ(logits_of(*engine, 1, {40}), continued);
  EXPECT_NE(logits_of(*engine, 2, {40}), continued);
}

TEST(FakeEngine, RefusesWhatDoesNotFit) {
  const auto engine = open();
  EXPECT_EQ(engine->reserve(SequenceId{0}, 129).error().code, ErrorCode::kOverloaded);
  ASSERT_TRUE(engine->reserve(SequenceId{0}, 128).has_value());
  EXPECT_EQ(step(*engine, 0, {1}).error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(step(*engine, 1, {300}).error().code, ErrorCode::kInvalidArgument);
}

TEST(FakeEngine, SharedMemoryIsTheSequencesOwnAndSealed) {
  const auto engine = open(true);
  const KvRegion& region = engine->kv_region(SequenceId{3});
  ASSERT_GE(region.shared_fd, 0);
  EXPECT_EQ(region.shared_bytes, 128U * 512U);
  EXPECT_EQ(ftruncate(region.shared_fd, 0), -1);
  EXPECT_EQ(errno, EPERM);
  logits_of(*engine, 3, {1, 2, 3});
  void* mapped = mmap(nullptr, region.shared_bytes, PROT_READ, MAP_SHARED, region.shared_fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  for (const KvWindow& window : region.windows) {
    EXPECT_EQ(std::memcmp(static_cast<std::byte*>(mapped) + window.shared_offset, window.base,
                          size_t{region.rows_max} * window.row_bytes),
              0);
  }
  munmap(mapped, region.shared_bytes);
}

TEST(FakeEngine, TextRoundTrips) {
  const auto engine = open();
  const Vocabulary& vocabulary = engine->vocabulary();
  const ChatMessage message{"user", "hi"};
  const std::string prompt = vocabulary.apply_chat_template({&message, 1}, {}, {}).value();
  EXPECT_EQ(prompt, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  const std::vector<Token> tokens = vocabulary.tokenize(prompt, true, true);
  EXPECT_EQ(tokens.front(), kFakeStart);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), kFakeEnd), 1);
  std::string text;
  for (const Token token : tokens) {
    text += vocabulary.piece(token, true);
  }
  EXPECT_EQ(text, prompt);
  EXPECT_EQ(vocabulary.tokenize("<|im_end|>", true, false).size(), 10U);
  EXPECT_EQ(vocabulary.piece(kFakeEnd, false), "");
  EXPECT_EQ(vocabulary.piece(-1, true), "");
  EXPECT_EQ(vocabulary.piece(1 << 20, true), "");
}

std::unique_ptr<Engine> open_in_gpu() {
  return open_engine({.kind = EngineKind::kFake,
                      .sequences = 4,
                      .tokens_per_sequence = 100,
                      .batch_tokens = 64,
                      .gpu = true,
                      .cuda = {.library = PDJOB_FAKE_CUDART}})
      .value();
}

void go_on_from_trimmed_rows(Engine& engine) {
  const auto whole = logits_of(engine, 0, {1, 2, 3, 4});
  logits_of(engine, 1, {1, 2, 9, 9, 9});
  engine.trim(SequenceId{1}, 2);
  EXPECT_EQ(engine.length(SequenceId{1}), 2U);
  EXPECT_EQ(logits_of(engine, 1, {3, 4}), whole);
  engine.trim(SequenceId{1}, 0);
  EXPECT_EQ(logits_of(engine, 1, {1, 2, 3, 4}), whole);
}

TEST(FakeEngine, GoesOnFromTrimmedRows) { go_on_from_trimmed_rows(*open()); }

TEST(FakeEngine, GoesOnFromTrimmedRowsInAGpusMemory) { go_on_from_trimmed_rows(*open_in_gpu()); }

TEST(FakeEngine, NeverKeepsMoreRowsThanThereAre) {
  const auto engine = open();
  logits_of(*engine, 0, {1, 2});
  EXPECT_DEATH(engine->trim(SequenceId{0}, 3), "rows <= length");
}

TEST(FakeEngine, ComputesTheSameWithItsKvInAGpusMemory) {
  const auto on_host = open(), in_gpu = open_in_gpu();
  EXPECT_EQ(logits_of(*in_gpu, 0, {1, 2, 3}), logits_of(*on_host, 0, {1, 2, 3}));
  ASSERT_TRUE(in_gpu->fork(SequenceId{0}, SequenceId{1}).has_value());
  EXPECT_EQ(logits_of(*in_gpu, 1, {4}), logits_of(*on_host, 0, {4}));
}

TEST(FakeEngine, SharesTheGpusMemoryOfAllSequences) {
  const auto engine = open_in_gpu();
  const KvRegion& first = engine->kv_region(SequenceId{0});
  const KvRegion& last = engine->kv_region(SequenceId{3});
  EXPECT_EQ(first.device, 0U);
  EXPECT_GE(first.shared_fd, 0);
  EXPECT_EQ(first.shared_fd, last.shared_fd);
  EXPECT_EQ(last.windows[0].base - first.windows[0].base,
            static_cast<std::ptrdiff_t>(last.windows[0].shared_offset));
  EXPECT_LE(last.windows.back().shared_offset + uint64_t{128} * 64, last.shared_bytes);
}

// Tests run on a build without CUDA.
TEST(LlamaEngine, SaysWhichBuildItTakesToComputeOnAGpu) {
  for (const EngineConfig& config : {EngineConfig{.gpu = true}, EngineConfig{.gpu_layers = 1}}) {
    const auto engine = open_engine(config);
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(engine.error().message.find("./dev build cuda"), std::string::npos);
  }
}

}  // namespace
}  // namespace pdjob::engine
