// Grammar: what may follow of a text that follows a compiled grammar; one for each choice. Its cost
// is bounded: a grammar so ambiguous that following it takes too long fails its choice. Loop-bound.
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
  // Sets what may not follow to -infinity.
  void mask(std::span<float> logits);
  // kInvalidArgument: the token may not follow, or following the grammar takes too long.
  Status accept(Token token);
  // Only an end token may follow, or one came.
  bool finished();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::engine
