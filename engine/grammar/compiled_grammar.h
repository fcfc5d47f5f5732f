// A grammar ready for use with one vocabulary, read from GrammarCompiler's bytes. Const; all
// choices that follow it share it. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"
#include "common/result.h"

namespace pdjob::engine {

// The bytes of each token. Empty for control tokens, which grammars never allow.
struct TokenPieces {
  std::vector<std::string> pieces;
  std::vector<Token> ends;  // They end a generation.
};

// Convert to bytes for another process, and back. read_pieces() fails with kCorrupt on other bytes.
std::string write_pieces(const TokenPieces& pieces);
Result<TokenPieces> read_pieces(std::string_view bytes);

struct GrammarTokens;  // The pieces, sorted for the library: tens of megabytes.
// Takes about 20 ms per 50,000 tokens.
std::shared_ptr<const GrammarTokens> open_grammar_tokens(const TokenPieces& pieces);

class CompiledGrammar {
 public:
  // Fails with kCorrupt if `bytes` do not come from a GrammarCompiler with the same tokens. Takes
  // milliseconds.
  static Result<std::shared_ptr<const CompiledGrammar>> read(
      std::shared_ptr<const GrammarTokens> tokens, std::string_view bytes);
  ~CompiledGrammar();

  size_t bytes() const;  // Its approximate size in memory.

  struct State;
  const State& state() const { return *state_; }

 private:
  explicit CompiledGrammar(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::engine
