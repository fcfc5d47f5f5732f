// Grammar: tracks one choice's position in a compiled grammar, and says which tokens may follow.
// Its cost is bounded: a grammar so ambiguous that following it takes too long fails the choice.
// Loop-bound.
#pragma once

#include <memory>
#include <span>

#include "common/generation.h"
#include "common/result.h"
#include "engine/grammar/compiled_grammar.h"

namespace pdjob::engine {

class Grammar {
 public:
  explicit Grammar(std::shared_ptr<const CompiledGrammar> compiled);
  Grammar(Grammar&&) noexcept;
  Grammar& operator=(Grammar&&) noexcept;
  ~Grammar();

  bool allows(Token token);
  // Sets the logits of tokens that may not follow to -infinity.
  void mask(std::span<float> logits);
  // Fails with kInvalidArgument if the token may not follow, or if following the grammar takes too
  // long.
  Status accept(Token token);
  // True if only an end token may follow, or one has come.
  bool finished();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::engine
