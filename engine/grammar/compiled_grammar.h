// A grammar ready to be followed, for one vocabulary: what GrammarCompiler has made, read back.
// Const and shared by all choices that follow it. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"
#include "common/result.h"

namespace pdjob::engine {

// The bytes of each token; empty: no grammar ever allows it (control tokens).
struct TokenPieces {
  std::vector<std::string> pieces;
  std::vector<Token> ends;  // They end a generation.
};

// As bytes, to hand to another process, and back. kCorrupt: they are not that.
std::string write_pieces(const TokenPieces& pieces);
Result<TokenPieces> read_pieces(std::string_view bytes);

struct GrammarTokens;  // The pieces, sorted for the library: tens of megabytes.
// Takes some 20 ms per 50,000 tokens.
std::shared_ptr<const GrammarTokens> open_grammar_tokens(const TokenPieces& pieces);

class CompiledGrammar {
 public:
  // kCorrupt: `bytes` are not what a GrammarCompiler of the same tokens returned. Milliseconds.
  static Result<std::shared_ptr<const CompiledGrammar>> read(
      std::shared_ptr<const GrammarTokens> tokens, std::string_view bytes);
  ~CompiledGrammar();

  size_t bytes() const;  // About what it takes in memory.

  struct State;
  const State& state() const { return *state_; }

 private:
  explicit CompiledGrammar(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::engine
