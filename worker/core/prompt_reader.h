// PromptReader: what a request reads of its prompt's tokens, step by step: their logprobs, or the
// embedding of them all. Used on the engine thread. Loop-bound.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/generation.h"
#include "common/result.h"
#include "engine/engine.h"

namespace pdjob::worker {

// What is read of a prompt's tokens.
enum class PromptReading { kNothing, kLogprobs, kEmbedding };

class PromptReader {
 public:
  // `alternatives`: per token, for kLogprobs.
  PromptReader(PromptReading reading, uint32_t alternatives);

  // What a step must put out of each token of the prompt.
  engine::EveryToken every() const;
  // Tokens [first, first + count) of the prompt were the sequence's item in the step that just
  // finished. Steps come in order, without a gap. Fails with kCorrupt if the engine's outputs are
  // not numbers.
  Status take(const engine::Engine& engine, SequenceId sequence, std::span<const Token> prompt,
              uint32_t first, uint32_t count);

  // After the last token. Either may be called once.
  PromptLogprobs take_logprobs();
  // Pooled as the model says, then divided by its length.
  std::vector<float> take_embedding(engine::Pooling pooling);

 private:
  Status take_logprobs(std::span<const float> logits, Token next);
  void take_hidden(std::span<const float> hidden);

  const PromptReading reading_;
  PromptLogprobs logprobs_;
  std::vector<double> sum_;  // Of the hidden states.
  std::vector<float> last_;
};

}  // namespace pdjob::worker
