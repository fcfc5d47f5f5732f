// Grammar: what may follow of a text that must match a GBNF grammar or a JSON schema. Made of what
// users send, so everything that could make libllama's parser recurse, multiply or abort is refused
// here first. Loop-bound.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "common/generation.h"
#include "common/result.h"
#include "engine/engine.h"

namespace pdjob::engine {

class Grammar {
 public:
  // kInvalidArgument: the grammar is wrong, or too much; kUnsupported: the vocabulary is not one of
  // libllama (the fake engine's).
  static Result<Grammar> from_gbnf(const Vocabulary& vocabulary, const std::string& gbnf);
  static Result<Grammar> from_json_schema(const Vocabulary& vocabulary, const std::string& schema);
  Grammar(Grammar&&) noexcept;
  Grammar& operator=(Grammar&&) noexcept;
  ~Grammar();

  bool allows(Token token) const;
  // Sets what may not follow to -infinity. Looks at the whole vocabulary: milliseconds.
  void mask(std::span<float> logits);
  // kInvalidArgument: the token may not follow, or the grammar is so ambiguous that following it
  // takes too much.
  Status accept(Token token);
  // Only an end token may follow, or one came.
  bool finished() const;

 private:
  struct State;
  explicit Grammar(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::engine
