#include "engine/grammar/compiled_grammar.h"

#include <utility>

#include "engine/grammar/bytes.h"
#include "engine/grammar/compiled_bytes.h"
#include "engine/grammar/compiled_grammar_state.h"
#include "engine/grammar/grammar_tokens.h"

namespace pdjob::engine {
std::string write_pieces(const TokenPieces& pieces) {
  BytesWriter out;
  out.number(static_cast<uint32_t>(pieces.pieces.size()));
  for (const std::string& piece : pieces.pieces) {
    out.text(piece);
  }
  out.number(static_cast<uint32_t>(pieces.ends.size()));
  for (const Token end : pieces.ends) {
    out.number(static_cast<uint32_t>(end));
  }
  return out.take();
}

Result<TokenPieces> read_pieces(std::string_view bytes) {
  BytesReader in(bytes);
  TokenPieces out;
  PDJOB_TRY(const uint32_t count, in.number());
  for (uint32_t i = 0; i < count; ++i) {
    PDJOB_TRY(const std::string_view piece, in.text());
    out.pieces.emplace_back(piece);
  }
  PDJOB_TRY(const uint32_t ends, in.number());
  for (uint32_t i = 0; i < ends; ++i) {
    PDJOB_TRY(const uint32_t end, in.number());
    out.ends.push_back(static_cast<Token>(end));
  }
  return out;
}

std::shared_ptr<const GrammarTokens> open_grammar_tokens(const TokenPieces& pieces) {
  return std::make_shared<GrammarTokens>(
      GrammarTokens{xgrammar::TokenizerInfo(pieces.pieces, xgrammar::VocabType::RAW,
                                            static_cast<int>(pieces.pieces.size()), pieces.ends),
                    pieces.ends});
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<State> state) : state_(std::move(state)) {}
CompiledGrammar::~CompiledGrammar() = default;

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::read(
    std::shared_ptr<const GrammarTokens> tokens, std::string_view bytes) {
  PDJOB_TRY(auto compiled, read_compiled(bytes, tokens->info));
  return std::shared_ptr<const CompiledGrammar>(
      new CompiledGrammar(std::make_unique<State>(State{std::move(tokens), std::move(compiled)})));
}

size_t CompiledGrammar::bytes() const { return state_->compiled.MemorySizeBytes(); }

}  // namespace pdjob::engine
