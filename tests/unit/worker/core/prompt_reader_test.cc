#include "worker/core/prompt_reader.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fake_engine.h"
#include "engine/sampler.h"

namespace pdjob::worker {
namespace {

constexpr SequenceId kSequence{1};
constexpr uint32_t kTokens = 8;
const std::vector<Token> kPrompt = {'a', ' ', 'q', 'u', 'i', 'z', engine::kFakeStart, 'b'};

std::unique_ptr<engine::Engine> fake_engine() {
  return *engine::open_engine({.kind = engine::EngineKind::kFake,
                               .sequences = 2,
                               .tokens_per_sequence = 64,
                               .batch_tokens = 32});
}

// Computes the prompt in steps of `step` tokens, and reads it.
void read(PromptReader& reader, uint32_t step) {
  const auto engine = fake_engine();
  for (uint32_t first = 0; first < kTokens; first += step) {
    const uint32_t count = std::min(step, kTokens - first);
    const engine::StepItem item{.sequence = kSequence,
                                .tokens = std::span(kPrompt).subspan(first, count),
                                .every = reader.every()};
    ASSERT_TRUE(engine->step({&item, 1}));
    ASSERT_TRUE(reader.take(*engine, kSequence, kPrompt, first, count));
  }
}

// The logits after each token, one step for each.
std::vector<std::vector<float>> all_logits() {
  const auto engine = fake_engine();
  std::vector<std::vector<float>> all;
  for (const Token& token : kPrompt) {
    const engine::StepItem item{kSequence, {&token, 1}, true};
    EXPECT_TRUE(engine->step({&item, 1}));
    const auto logits = engine->logits(kSequence);
    all.emplace_back(logits.begin(), logits.end());
  }
  return all;
}

TEST(PromptReader, LogprobsAreThoseOfTheNextTokenInEachRowOfLogits) {
  const auto rows = all_logits();
  for (const uint32_t step : {1U, 3U, 8U}) {
    PromptReader reader(PromptReading::kLogprobs, 2);
    read(reader, step);
    const PromptLogprobs logprobs = reader.take_logprobs();
    ASSERT_EQ(logprobs.logprobs.size(), kPrompt.size() - 1);
    ASSERT_EQ(logprobs.top.size(), 2 * (kPrompt.size() - 1));
    for (size_t at = 0; at + 1 < kPrompt.size(); ++at) {
      double total = 0;
      for (const float logit : rows[at]) {
        total += std::exp(static_cast<double>(logit));
      }
      const float own = rows[at][static_cast<size_t>(kPrompt[at + 1])];
      EXPECT_NEAR(logprobs.logprobs[at], own - std::log(total), 1e-4) << at;
      const auto most = std::max_element(rows[at].begin(), rows[at].end());
      EXPECT_EQ(logprobs.top[2 * at].token, most - rows[at].begin()) << at;
      EXPECT_GE(logprobs.top[2 * at].logprob, logprobs.top[2 * at + 1].logprob);
    }
  }
}

TEST(PromptReader, APromptOfOneTokenHasNoLogprobs) {
  const auto engine = fake_engine();
  PromptReader reader(PromptReading::kLogprobs, 2);
  const Token token = 'a';
  const engine::StepItem item{
      .sequence = kSequence, .tokens = {&token, 1}, .every = reader.every()};
  ASSERT_TRUE(engine->step({&item, 1}));
  ASSERT_TRUE(reader.take(*engine, kSequence, {&token, 1}, 0, 1));
  EXPECT_TRUE(reader.take_logprobs().logprobs.empty());
}

TEST(PromptReader, AnEmbeddingIsTheMeanOfLengthOneHoweverThePromptIsCut) {
  PromptReader whole(PromptReading::kEmbedding, 0);
  read(whole, 8);
  const std::vector<float> embedding = whole.take_embedding(engine::Pooling::kMean);
  ASSERT_EQ(embedding.size(), engine::kFakeEmbeddingDim);
  EXPECT_NEAR(std::inner_product(embedding.begin(), embedding.end(), embedding.begin(), 0.0), 1.0,
              1e-6);
  PromptReader cut(PromptReading::kEmbedding, 0);
  read(cut, 3);
  EXPECT_EQ(cut.take_embedding(engine::Pooling::kMean), embedding);
}

TEST(PromptReader, AModelMayPoolTheLastTokenOnly) {
  PromptReader reader(PromptReading::kEmbedding, 0);
  read(reader, 3);
  const std::vector<float> embedding = reader.take_embedding(engine::Pooling::kLast);
  const auto engine = fake_engine();
  const engine::StepItem item{
      .sequence = kSequence, .tokens = kPrompt, .every = engine::EveryToken::kHidden};
  ASSERT_TRUE(engine->step({&item, 1}));
  const auto last = engine->hidden_at(kSequence, kTokens - 1);
  const double length = std::sqrt(std::inner_product(last.begin(), last.end(), last.begin(), 0.0));
  for (size_t i = 0; i < last.size(); ++i) {
    EXPECT_NEAR(embedding[i], last[i] / length, 1e-6);
  }
}

}  // namespace
}  // namespace pdjob::worker
