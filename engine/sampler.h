// Sampler: turns one row of logits into the next token of one choice, by rules that depend only on
// (logits, tokens so far, seed, position): never on a running generator. So a stream that is
// continued elsewhere, by replaying its tokens, is the same stream.
//
// Order, as in vLLM: logit bias, penalties, temperature, top-k, top-p, min-p, draw. Logprobs are of
// the raw logits. A grammar is asked about the token so chosen; only if it refuses, the vocabulary
// is masked and the token chosen again (sampler.cc says what that means for the distribution).
//
// Until min_tokens are there, what would end the generation is not chosen, with ignore_eos neither,
// as in vLLM; but where nothing else can follow (a grammar is complete), it is chosen all the same.
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

  // The token at position `tokens seen so far`; accepts it. `logits` is read only. kCorrupt: they
  // are not numbers (KV rows were damaged); kInvalidArgument: the grammar allows no token, or did
  // not allow one that was replayed. Then the choice has failed.
  virtual Result<GeneratedToken> sample(std::span<const float> logits) = 0;
  // Tells of a token that was chosen elsewhere (replay): exactly as if it had been sampled.
  virtual void accept(Token token) = 0;
  // The grammar is complete: only an end token may follow.
  virtual bool finished() = 0;
};

// `grammar`, if there is one, is shared with other choices; each follows it alone.
// `prompt` counts for the repetition penalty, and its length is the position of the first draw. Of
// `stop` only min_tokens and token_ids matter here.
// kInvalidArgument: a parameter is wrong.
Result<std::unique_ptr<Sampler>> open_sampler(const Engine& engine, const SamplingParams& params,
                                              std::span<const Token> prompt,
                                              const StopParams& stop = {},
                                              std::shared_ptr<const CompiledGrammar> grammar = {});

// The part of a vocabulary that a grammar may use: no control tokens.
TokenPieces grammar_pieces(const Vocabulary& vocabulary);

}  // namespace pdjob::engine
