#include "worker/core/prompt_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "engine/sampler.h"

namespace pdjob::worker {

PromptReader::PromptReader(PromptReading reading, uint32_t alternatives) : reading_(reading) {
  logprobs_.alternatives = alternatives;
}

engine::EveryToken PromptReader::every() const {
  switch (reading_) {
    case PromptReading::kLogprobs:
      return engine::EveryToken::kLogits;
    case PromptReading::kEmbedding:
      return engine::EveryToken::kHidden;
    case PromptReading::kNothing:
      break;
  }
  return engine::EveryToken::kNothing;
}

Status PromptReader::take(const engine::Engine& engine, SequenceId sequence,
                          std::span<const Token> prompt, uint32_t first, uint32_t count) {
  for (uint32_t index = 0; index < count; ++index) {
    if (reading_ == PromptReading::kEmbedding) {
      take_hidden(engine.hidden_at(sequence, index));
    } else if (reading_ == PromptReading::kLogprobs && first + index + 1 < prompt.size()) {
      PDJOB_TRY_STATUS(take_logprobs(engine.logits_at(sequence, index), prompt[first + index + 1]));
    }
  }
  return ok();
}

Status PromptReader::take_logprobs(std::span<const float> logits, Token next) {
  PDJOB_TRY(const GeneratedToken scored,
            engine::with_logprobs(next, logits, logprobs_.alternatives));
  logprobs_.logprobs.push_back(scored.logprob);
  logprobs_.top.insert(logprobs_.top.end(), scored.top.begin(), scored.top.end());
  return ok();
}

void PromptReader::take_hidden(std::span<const float> hidden) {
  sum_.resize(hidden.size());
  std::ranges::transform(sum_, hidden, sum_.begin(), [](double sum, float x) { return sum + x; });
  last_.assign(hidden.begin(), hidden.end());
}

PromptLogprobs PromptReader::take_logprobs() { return std::move(logprobs_); }

// The mean and the sum have the same direction.
std::vector<float> PromptReader::take_embedding(engine::Pooling pooling) {
  PDJOB_CHECK(pooling != engine::Pooling::kNone && !sum_.empty());
  if (pooling == engine::Pooling::kLast) {
    sum_.assign(last_.begin(), last_.end());
  }
  double squares = 0;
  for (const double x : sum_) {
    squares += x * x;
  }
  const double length = std::sqrt(squares);
  std::vector<float> embedding(sum_.size());
  std::ranges::transform(sum_, embedding.begin(), [length](double x) {
    return length > 0 ? static_cast<float>(x / length) : 0.0F;
  });
  return embedding;
}

}  // namespace pdjob::worker
