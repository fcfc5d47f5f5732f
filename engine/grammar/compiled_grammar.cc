#include "engine/grammar/compiled_grammar.h"

#include <cstring>
#include <exception>
#include <utility>
#include <variant>

#include "common/limits.h"
#include "engine/grammar/compiled_grammar_state.h"
#include "engine/grammar/grammar_tokens.h"

namespace pdjob::engine {
namespace {

void put(std::string& out, uint32_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

class Bytes {
 public:
  explicit Bytes(std::string_view left) : left_(left) {}

  Result<uint32_t> number() {
    uint32_t value = 0;
    if (left_.size() < sizeof value) {
      return Error{ErrorCode::kCorrupt, "the vocabulary ends too early"};
    }
    std::memcpy(&value, left_.data(), sizeof value);
    left_.remove_prefix(sizeof value);
    return value;
  }
  Result<std::string> text() {
    PDJOB_TRY(const uint32_t size, number());
    if (size > left_.size()) {
      return Error{ErrorCode::kCorrupt, "the vocabulary ends too early"};
    }
    std::string out(left_.substr(0, size));
    left_.remove_prefix(size);
    return out;
  }

 private:
  std::string_view left_;
};

}  // namespace

std::string write_pieces(const TokenPieces& pieces) {
  std::string out;
  put(out, static_cast<uint32_t>(pieces.pieces.size()));
  for (const std::string& piece : pieces.pieces) {
    put(out, static_cast<uint32_t>(piece.size()));
    out += piece;
  }
  put(out, static_cast<uint32_t>(pieces.ends.size()));
  for (const Token end : pieces.ends) {
    put(out, static_cast<uint32_t>(end));
  }
  return out;
}

Result<TokenPieces> read_pieces(std::string_view bytes) {
  Bytes in(bytes);
  TokenPieces out;
  PDJOB_TRY(const uint32_t count, in.number());
  for (uint32_t i = 0; i < count; ++i) {
    PDJOB_TRY(std::string piece, in.text());
    out.pieces.push_back(std::move(piece));
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
    std::shared_ptr<const GrammarTokens> tokens, const std::string& text) {
  const Error unreadable{ErrorCode::kCorrupt, "the compiled grammar cannot be read"};
  try {
    auto read = xgrammar::CompiledGrammar::DeserializeJSON(text, tokens->info);
    if (auto* compiled = std::get_if<xgrammar::CompiledGrammar>(&read)) {
      return std::shared_ptr<const CompiledGrammar>(new CompiledGrammar(
          std::make_unique<State>(State{std::move(tokens), std::move(*compiled)})));
    }
  } catch (const std::exception&) {
    return unreadable;
  }
  return unreadable;
}

size_t CompiledGrammar::bytes() const { return state_->compiled.MemorySizeBytes(); }

}  // namespace pdjob::engine
