// Sampler: turns one row of logits into the next token of one choice. The result depends only on
// (logits, tokens so far, seed, position), never on the state of a generator. So another worker can
// replay a stream's tokens and continue it identically.
//
// Order, as in vLLM: logit bias, penalties, temperature, top-k, top-p, min-p, draw. Logprobs use
// the raw logits, as in vLLM, or those before top-k divided by the temperature, as in SGLang
// (SamplingParams::logprobs_at_temperature). Greedy choices have no temperature. The grammar checks
// the chosen token. Only if it refuses, the vocabulary is masked and the token chosen again
// (sampler.cc explains the effect on the distribution).
//
// Until min_tokens are generated, a token that ends the generation is not chosen, even with
// ignore_eos, as in vLLM. It is chosen anyway if no other can follow (the grammar is complete).
// Used on the engine thread. Loop-bound.
#pragma once

#include <memory>
#include <span>

#include "common/generation.h"
#include "common/result.h"

namespace pdjob::engine {

class CompiledGrammar;
class Engine;
class Vocabulary;
struct TokenPieces;

class Sampler {
 public:
  virtual ~Sampler() = default;

  // Chooses and accepts the token at position `tokens seen so far`. `logits` is read only. On an
  // error the choice has failed. Damaged KV rows, whose logits are not numbers: kCorrupt. A grammar
  // that allows no token, or refused a replayed one: kInvalidArgument.
  virtual Result<GeneratedToken> sample(std::span<const float> logits) = 0;
  // Accepts a token that was chosen elsewhere (replay), exactly as if it had been sampled.
  virtual void accept(Token token) = 0;
  // True if the grammar is complete: only an end token may follow.
  virtual bool finished() = 0;
};

// Opens the sampler of one choice. Fails with kInvalidArgument if a parameter is wrong.
// - `grammar` may be null. Choices share it, and each keeps its own state.
// - `prompt` counts for the repetition penalty. Its length is the position of the first draw.
// - `stop`: only min_tokens and token_ids are used.
Result<std::unique_ptr<Sampler>> open_sampler(const Engine& engine, const SamplingParams& params,
                                              std::span<const Token> prompt,
                                              const StopParams& stop = {},
                                              std::shared_ptr<const CompiledGrammar> grammar = {});

// `token` with its logprob in the distribution of these logits, divided by `temperature`, and the
// `alternatives` most likely tokens with theirs. Fails with kCorrupt if the logits are not numbers.
Result<GeneratedToken> with_logprobs(Token token, std::span<const float> logits,
                                     uint32_t alternatives, float temperature = 1.0F);

// The part of a vocabulary that a grammar may use: all except control tokens.
TokenPieces grammar_pieces(const Vocabulary& vocabulary);

}  // namespace pdjob::engine
