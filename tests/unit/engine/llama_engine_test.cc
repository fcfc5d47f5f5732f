#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/random.h"
#include "engine/engine.h"
#include "engine/model_facts.h"
#include "engine/shared_kv.h"
#include "engine/threads/thread_board.h"
#include "tests/unit/engine/test_model.h"

namespace pdjob::engine {
namespace {

using Logits = std::vector<float>;

Token most_likely(const Logits& row) {
  return static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
}

Logits logits_of(const Engine& engine, uint32_t sequence) {
  const auto row = engine.logits(SequenceId{sequence});
  return {row.begin(), row.end()};
}

void run(Engine& engine, uint32_t sequence, std::span<const Token> tokens, bool wants_logits) {
  const StepItem item{SequenceId{sequence}, tokens, wants_logits};
  const Status status = engine.step({&item, 1});
  ASSERT_TRUE(status.has_value()) << status.error().message;
}

// Prefills in chunks. Returns the logits of the last token.
Logits prefill(Engine& engine, uint32_t sequence, const std::vector<Token>& prompt, size_t chunk) {
  for (size_t at = 0; at < prompt.size(); at += chunk) {
    const size_t count = std::min(chunk, prompt.size() - at);
    run(engine, sequence, std::span(prompt).subspan(at, count), at + count == prompt.size());
  }
  return logits_of(engine, sequence);
}

// Decodes greedily. Returns the logits after each token.
std::vector<Logits> decode(Engine& engine, uint32_t sequence, Logits row, int tokens) {
  std::vector<Logits> rows;
  for (int i = 0; i < tokens; ++i) {
    const Token token = most_likely(row);
    run(engine, sequence, {&token, 1}, true);
    row = logits_of(engine, sequence);
    rows.push_back(row);
  }
  return rows;
}

class LlamaEngine : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!test_model().empty()) {
      engine_ = open(test_config()).release();
    }
  }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  void SetUp() override {
    if (engine_ == nullptr) {
      GTEST_SKIP() << kNoTestModel;
    }
    for (uint32_t sequence = 0; sequence < engine_->config().sequences; ++sequence) {
      engine_->clear(SequenceId{sequence});
    }
  }

  static std::unique_ptr<Engine> open(const EngineConfig& config) {
    auto engine = open_engine(config);
    EXPECT_TRUE(engine.has_value()) << (engine.has_value() ? "" : engine.error().message);
    return std::move(*engine);
  }
  // Returns ordinary tokens, the same on every run.
  static std::vector<Token> prompt(size_t length, uint64_t seed = 1) {
    Random random(seed);
    std::vector<Token> tokens;
    while (tokens.size() < length) {
      const auto token = static_cast<Token>(random.below(engine_->facts().vocabulary));
      if (!engine_->vocabulary().is_control(token)) {
        tokens.push_back(token);
      }
    }
    return tokens;
  }

  static Engine* engine_;
};
Engine* LlamaEngine::engine_ = nullptr;

TEST_F(LlamaEngine, SaysWhatTheModelIs) {
  const ModelFacts& facts = engine_->facts();
  EXPECT_EQ(facts.name, std::filesystem::path(test_model()).stem().string());
  EXPECT_EQ(facts.digest.size(), 32U);
  EXPECT_EQ(facts.kv_type, "q8_0");
  EXPECT_GT(facts.layers, 0U);
  EXPECT_EQ(facts.kv_bytes_per_token,
            uint64_t{2} * facts.layers * facts.kv_heads * facts.head_dim * 34 / 32);
  const KvRegion& region = engine_->kv_region(SequenceId{1});
  EXPECT_EQ(region.windows.size(), 2 * facts.layers);
  EXPECT_EQ(region.rows_max, engine_->config().tokens_per_sequence);
  EXPECT_GE(region.rows_max, 512U);
}

TEST_F(LlamaEngine, ChunkedPrefillEqualsOneShot) {
  const auto tokens = prompt(90);
  const Logits whole = prefill(*engine_, 0, tokens, 90);
  for (const size_t chunk : {3UL, 32UL, 89UL}) {
    engine_->clear(SequenceId{1});
    EXPECT_EQ(prefill(*engine_, 1, tokens, chunk), whole) << "chunks of " << chunk;
  }
}

// Row `at` is the same whether only it was asked or all of its step.
TEST_F(LlamaEngine, EveryTokenHasTheLogitsThatItHasAlone) {
  const std::vector<Token> tokens = prompt(100);
  std::vector<Logits> alone;
  for (const size_t end : {1UL, 40UL, 64UL, 100UL}) {
    engine_->clear(SequenceId{1});
    alone.push_back(
        prefill(*engine_, 1, {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(end)}, 64));
  }
  engine_->clear(SequenceId{0});
  engine_->clear(SequenceId{1});
  const auto read = [&](uint32_t first, uint32_t count) {
    const StepItem item{.sequence = SequenceId{0},
                        .tokens = std::span(tokens).subspan(first, count),
                        .wants_logits = true,
                        .every = EveryToken::kLogits};
    ASSERT_TRUE(engine_->step({&item, 1}));
  };
  const auto row = [&](uint32_t index) {
    const auto logits = engine_->logits_at(SequenceId{0}, index);
    return Logits(logits.begin(), logits.end());
  };
  read(0, 64);
  EXPECT_EQ(row(0), alone[0]);
  EXPECT_EQ(row(39), alone[1]);
  EXPECT_EQ(row(63), alone[2]);
  read(64, 36);
  EXPECT_EQ(row(35), alone[3]);
  EXPECT_EQ(logits_of(*engine_, 0), alone[3]);
}

TEST_F(LlamaEngine, AStepWithHiddenStatesChangesNothingForOthers) {
  const std::vector<Token> tokens = prompt(64);
  engine_->clear(SequenceId{0});
  engine_->clear(SequenceId{1});
  const Logits first = prefill(*engine_, 1, tokens, 64);
  const Token next = most_likely(first);
  std::vector<StepItem> items = {
      {.sequence = SequenceId{0}, .tokens = tokens, .every = EveryToken::kHidden},
      {SequenceId{1}, {&next, 1}, true}};
  ASSERT_TRUE(engine_->step(items));
  const Logits beside = logits_of(*engine_, 1);
  const auto hidden = engine_->hidden_at(SequenceId{0}, 63);
  EXPECT_EQ(hidden.size(), engine_->facts().embedding_dim);
  EXPECT_GT(std::abs(hidden[0]), 0);
  EXPECT_EQ(engine_->facts().pooling, Pooling::kMean);
  engine_->clear(SequenceId{0});
  engine_->clear(SequenceId{1});
  prefill(*engine_, 1, tokens, 64);
  run(*engine_, 1, {&next, 1}, true);
  EXPECT_EQ(logits_of(*engine_, 1), beside);
}

TEST_F(LlamaEngine, BatchCompositionDoesNotMatter) {
  std::map<uint32_t, std::vector<Logits>> alone;
  std::map<uint32_t, Logits> rows;
  for (uint32_t sequence = 0; sequence < 4; ++sequence) {
    rows[sequence] = prefill(*engine_, sequence, prompt(20 + 15 * sequence, sequence), 128);
    alone[sequence] = decode(*engine_, sequence, rows[sequence], 4);
    engine_->clear(SequenceId{sequence});
  }
  // First all prompts in one batch. Then all sequences decode in one batch, beside another prompt's
  // prefill.
  const auto prompts = [&] {
    std::vector<std::vector<Token>> all;
    for (uint32_t sequence = 0; sequence < 3; ++sequence) {
      all.push_back(prompt(20 + 15 * sequence, sequence));
    }
    return all;
  }();
  std::vector<StepItem> items;
  for (uint32_t sequence = 0; sequence < 3; ++sequence) {
    items.push_back({SequenceId{sequence}, prompts[sequence], true});
  }
  ASSERT_TRUE(engine_->step(items).has_value());
  for (uint32_t sequence = 0; sequence < 3; ++sequence) {
    EXPECT_EQ(logits_of(*engine_, sequence), rows[sequence]) << sequence;
  }
  const auto other = prompt(65, 3);
  std::map<uint32_t, Token> tokens;
  for (size_t i = 0; i < 4; ++i) {
    items.clear();
    for (uint32_t sequence = 0; sequence < 3; ++sequence) {
      tokens[sequence] = most_likely(i == 0 ? rows[sequence] : alone[sequence][i - 1]);
      items.push_back({SequenceId{sequence}, {&tokens[sequence], 1}, true});
    }
    items.push_back({SequenceId{3}, std::span(other).subspan(i * 16, i == 3 ? 17 : 16), i == 3});
    ASSERT_TRUE(engine_->step(items).has_value());
    for (uint32_t sequence = 0; sequence < 3; ++sequence) {
      EXPECT_EQ(logits_of(*engine_, sequence), alone[sequence][i]) << sequence << " step " << i;
    }
  }
  EXPECT_EQ(logits_of(*engine_, 3), rows[3]);
}

TEST_F(LlamaEngine, TheNumberOfThreadsDoesNotMatter) {
  EngineConfig config = test_config();
  config.threads = 2;
  config.sequences = 2;
  const auto two = open(config);
  const auto tokens = prompt(100);
  const Logits row = prefill(*engine_, 0, tokens, 100);
  EXPECT_EQ(prefill(*two, 0, tokens, 100), row);
  EXPECT_EQ(decode(*two, 0, row, 4), decode(*engine_, 0, row, 4));
}

// libllama could split one query over 512 or more rows over several threads.
TEST_F(LlamaEngine, TheNumberOfThreadsDoesNotMatterOverManyRows) {
  EngineConfig config = test_config();
  config.tokens_per_sequence = 1024;
  config.sequences = 1;
  const auto one = open(config);
  config.threads = 2;
  const auto two = open(config);
  const Logits row = prefill(*one, 0, prompt(530), 256);
  ASSERT_TRUE(two->reserve(SequenceId{0}, 530).has_value());
  copy_rows(one->kv_region(SequenceId{0}), two->kv_region(SequenceId{0}), 530);
  EXPECT_EQ(decode(*two, 0, row, 3), decode(*one, 0, row, 3));
}

float distance(const Logits& a, const Logits& b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

// docs/explanation/determinism.md: f16 with a short last chunk is outside the invariant
// configurations.
TEST_F(LlamaEngine, LogitsStayCloseOutsideAnInvariantConfiguration) {
  constexpr float kTolerance = 1.5F;
  EngineConfig config = test_config();
  config.kv_type = KvType::kF16;
  const auto engine = open(config);
  for (const size_t length : {65UL, 129UL}) {
    const auto tokens = prompt(length);
    const Logits whole = prefill(*engine, 0, tokens, length);
    const Logits chunked = prefill(*engine, 1, tokens, length - 1);
    EXPECT_LT(distance(chunked, whole), kTolerance) << length;
    // Another last token moves the logits farther: the tolerance can tell them apart.
    auto other = tokens;
    other.back() = tokens.front();
    EXPECT_GT(distance(prefill(*engine, 2, other, length), whole), 3 * kTolerance) << length;
    for (uint32_t sequence = 0; sequence < 3; ++sequence) {
      engine->clear(SequenceId{sequence});
    }
  }
}

TEST_F(LlamaEngine, RowsHandedOverContinueBitForBit) {
  EngineConfig config = test_config();
  config.sequences = 3;
  config.tokens_per_sequence = 1500;  // A different geometry from the sender's.
  const auto receiver = open(config);
  const auto tokens = prompt(120);
  const Logits row = prefill(*engine_, 2, tokens, 100);
  for (const uint32_t target : {0U, 2U}) {
    ASSERT_TRUE(receiver->reserve(SequenceId{target}, 120).has_value());
    copy_rows(engine_->kv_region(SequenceId{2}), receiver->kv_region(SequenceId{target}), 120);
  }
  const auto expected = decode(*engine_, 2, row, 5);
  EXPECT_EQ(decode(*receiver, 2, row, 5), expected);
  EXPECT_EQ(decode(*receiver, 0, row, 5), expected);
}

TEST_F(LlamaEngine, RowsHandedOverBehindRowsThatAreThereContinueBitForBit) {
  const auto tokens = prompt(120);
  const Logits row = prefill(*engine_, 0, tokens, 60);
  prefill(*engine_, 2, {tokens.begin(), tokens.begin() + 50}, 50);
  ASSERT_TRUE(engine_->reserve(SequenceId{2}, 120).has_value());
  KvRegion from = engine_->kv_region(SequenceId{0});
  KvRegion to = engine_->kv_region(SequenceId{2});
  for (KvRegion* const region : {&from, &to}) {
    for (KvWindow& window : region->windows) {
      window.base += size_t{50} * window.row_bytes;
    }
  }
  copy_rows(from, to, 70);
  EXPECT_EQ(decode(*engine_, 2, row, 5), decode(*engine_, 0, row, 5));
}

TEST_F(LlamaEngine, RowsWrittenThroughTheMemfdContinueBitForBit) {
  const auto tokens = prompt(90);
  const Logits row = prefill(*engine_, 0, tokens, 90);
  const KvRegion& source = engine_->kv_region(SequenceId{0});
  const KvRegion& target = engine_->kv_region(SequenceId{3});
  ASSERT_GE(target.shared_fd, 0);
  ASSERT_TRUE(engine_->reserve(SequenceId{3}, 90).has_value());
  void* mapped =
      mmap(nullptr, target.shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, target.shared_fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  for (size_t window = 0; window < source.windows.size(); ++window) {
    std::memcpy(static_cast<std::byte*>(mapped) + target.windows[window].shared_offset,
                source.windows[window].base, size_t{90} * source.windows[window].row_bytes);
  }
  munmap(mapped, target.shared_bytes);
  const auto expected = decode(*engine_, 0, row, 4);
  EXPECT_EQ(decode(*engine_, 3, row, 4), expected);
}

TEST_F(LlamaEngine, PrivateKvGivesTheSame) {
  EngineConfig config = test_config();
  config.shared_kv = false;
  const auto other = open(config);
  EXPECT_EQ(other->kv_region(SequenceId{0}).shared_fd, -1);
  const auto tokens = prompt(60);
  const Logits row = prefill(*engine_, 0, tokens, 60);
  EXPECT_EQ(prefill(*other, 0, tokens, 60), row);
}

// docs/explanation/determinism.md: with q8_0 KV the number of threads may change between steps.
TEST_F(LlamaEngine, ThreadsBorrowedForSomeStepsChangeNoLogit) {
  const auto fd = ThreadBoard::create(2);
  ASSERT_TRUE(fd.has_value());
  auto lender = ThreadBoard::join(dup(*fd), 1);
  ASSERT_TRUE(lender.has_value());
  EngineConfig config = test_config();
  config.threads_fd = *fd;
  const auto borrower = open(config);
  const auto tokens = prompt(150);
  Logits row = prefill(*engine_, 0, tokens, 100);
  EXPECT_EQ(prefill(*borrower, 0, tokens, 100), row);
  for (int i = 0; i < 6; ++i) {
    const Logits mine = decode(*borrower, 0, row, 1).front();
    row = decode(*engine_, 0, row, 1).front();
    EXPECT_EQ(mine, row) << i;
    i % 2 == 0 ? static_cast<void>(lender->begin_step(Instant{})) : lender->end_step(Instant{});
  }
}

TEST_F(LlamaEngine, AForkContinuesLikeItsOrigin) {
  const auto tokens = prompt(70);
  const Logits row = prefill(*engine_, 1, tokens, 70);
  ASSERT_TRUE(engine_->fork(SequenceId{1}, SequenceId{3}).has_value());
  EXPECT_EQ(engine_->length(SequenceId{3}), 70U);
  const auto expected = decode(*engine_, 1, row, 3);
  EXPECT_EQ(decode(*engine_, 3, row, 3), expected);
}

TEST_F(LlamaEngine, AClearedSequenceStartsAnew) {
  const auto first = prompt(40, 5);
  const Logits fresh = prefill(*engine_, 0, first, 40);
  for (int round = 0; round < 3; ++round) {
    engine_->clear(SequenceId{0});
    EXPECT_EQ(engine_->length(SequenceId{0}), 0U);
    prefill(*engine_, 0, prompt(20 + 20 * static_cast<size_t>(round), 6), 256);
  }
  engine_->clear(SequenceId{0});
  EXPECT_EQ(prefill(*engine_, 0, first, 40), fresh);
}

// Covers prefixes of many lengths, around the edges of chunks and of quantised blocks. The sequence
// held other tokens, and generated ones, behind the prefix.
TEST_F(LlamaEngine, APromptThatGoesOnFromTrimmedRowsGivesTheSameBitForBit) {
  const auto tokens = prompt(300);
  const Logits row = prefill(*engine_, 0, tokens, 256);
  const auto expected = decode(*engine_, 0, row, 3);
  prefill(*engine_, 2, tokens, 100);
  for (const uint32_t kept : {299U, 298U, 288U, 257U, 256U, 255U, 129U, 128U, 127U, 65U,
                              64U,  63U,  33U,  32U,  31U,  17U,  16U,  15U,  1U,   0U}) {
    SCOPED_TRACE(kept);
    engine_->trim(SequenceId{2}, kept);
    decode(*engine_, 2, prefill(*engine_, 2, prompt(20, kept), 20), 2);
    engine_->trim(SequenceId{2}, kept);
    EXPECT_EQ(engine_->length(SequenceId{2}), kept);
    const std::vector<Token> rest(tokens.begin() + kept, tokens.end());
    const Logits again = prefill(*engine_, 2, rest, 256);
    EXPECT_EQ(again, row);
    EXPECT_EQ(decode(*engine_, 2, again, 3), expected);
  }
}

TEST_F(LlamaEngine, TrimmedRowsMoveAndForkAsAnyOthers) {
  const auto tokens = prompt(80);
  const Logits row = prefill(*engine_, 0, tokens, 80);
  const auto expected = decode(*engine_, 0, row, 3);
  engine_->trim(SequenceId{0}, 50);
  ASSERT_TRUE(engine_->fork(SequenceId{0}, SequenceId{1}).has_value());
  ASSERT_TRUE(engine_->reserve(SequenceId{3}, 50).has_value());
  copy_rows(engine_->kv_region(SequenceId{0}), engine_->kv_region(SequenceId{3}), 50);
  for (const uint32_t sequence : {1U, 3U, 0U}) {
    const Logits again = prefill(*engine_, sequence, {tokens.begin() + 50, tokens.end()}, 30);
    EXPECT_EQ(again, row) << sequence;
    EXPECT_EQ(decode(*engine_, sequence, again, 3), expected) << sequence;
  }
}

TEST_F(LlamaEngine, ASequenceIsFullAtItsLastRow) {
  const uint32_t rows = engine_->config().tokens_per_sequence;
  EXPECT_EQ(engine_->reserve(SequenceId{1}, rows + 1).error().code, ErrorCode::kOverloaded);
  ASSERT_TRUE(engine_->reserve(SequenceId{1}, rows - 1).has_value());
  const std::vector<Token> tokens = prompt(2);
  StepItem item{SequenceId{1}, tokens, true};
  EXPECT_EQ(engine_->step({&item, 1}).error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(engine_->length(SequenceId{1}), rows - 1);
  item.tokens = item.tokens.first(1);
  EXPECT_TRUE(engine_->step({&item, 1}).has_value());
  EXPECT_EQ(engine_->step({&item, 1}).error().code, ErrorCode::kOverloaded);
  engine_->clear(SequenceId{1});
  EXPECT_TRUE(engine_->step({&item, 1}).has_value());
}

TEST_F(LlamaEngine, RefusesTokensThatDoNotExist) {
  for (const Token token : {-1, static_cast<Token>(engine_->facts().vocabulary)}) {
    const StepItem item{SequenceId{0}, {&token, 1}, true};
    EXPECT_EQ(engine_->step({&item, 1}).error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(engine_->length(SequenceId{0}), 0U);
}

TEST_F(LlamaEngine, DigestTellsFilesApart) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("pdjob_digest_" + std::to_string(getpid()) + ".gguf");
  std::filesystem::copy_file(test_model(), path);
  EXPECT_EQ(model_digest(path.string()).value(), engine_->facts().digest);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(24 + 8 + 5);
    const char old = static_cast<char>(file.get());
    file.seekp(24 + 8 + 5);
    file.put(static_cast<char>(old ^ 1));
  }
  const auto changed = model_digest(path.string());
  EXPECT_TRUE(!changed.has_value() || *changed != engine_->facts().digest);
  std::filesystem::remove(path);
}

TEST(LlamaEngineFiles, AFileThatIsNoModelIsRefused) {
  EXPECT_EQ(open_engine({.model_path = "/nonexistent.gguf"}).error().code, ErrorCode::kNotFound);
  const auto path = std::filesystem::temp_directory_path() /
                    ("pdjob_no_model_" + std::to_string(getpid()) + ".gguf");
  std::ofstream(path) << "GGUF but not really";
  EXPECT_EQ(open_engine({.model_path = path.string()}).error().code, ErrorCode::kCorrupt);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace pdjob::engine
