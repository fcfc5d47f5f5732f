// A small vocabulary, and functions that make and walk grammars with it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/random.h"
#include "engine/grammar/compiled_grammar.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_compiler.h"

namespace pdjob::engine {

inline constexpr Token kTestEnd = 256;

// Returns all bytes, an end token, and some longer tokens.
inline TokenPieces test_pieces() {
  TokenPieces out;
  for (int byte = 0; byte < 256; ++byte) {
    out.pieces.emplace_back(1, static_cast<char>(byte));
  }
  out.pieces.emplace_back();
  out.ends = {kTestEnd};
  for (const char* longer : {"\":", "\",", "{\"", "##", "####", "    ", "true", "\"a\"", "\n\n"}) {
    out.pieces.emplace_back(longer);
  }
  return out;
}

inline const std::shared_ptr<const GrammarTokens>& test_tokens() {
  static const auto tokens = open_grammar_tokens(test_pieces());
  return tokens;
}

inline Result<std::shared_ptr<const CompiledGrammar>> compile(StructureKind kind,
                                                              std::string_view text) {
  PDJOB_TRY(const CheckedStructure checked, check_structure(kind, text));
  GrammarCompiler compiler(test_tokens());
  PDJOB_TRY(const std::string compiled, compiler.compile(kind, checked.text));
  return CompiledGrammar::read(test_tokens(), compiled);
}

// Returns whether the grammar accepts the whole text, byte by byte.
inline bool follows(const std::shared_ptr<const CompiledGrammar>& compiled, std::string_view text) {
  Grammar grammar(compiled);
  for (const char sign : text) {
    if (!grammar.accept(static_cast<unsigned char>(sign)).has_value()) {
      return false;
    }
  }
  return grammar.allows(kTestEnd);
}

// Returns a random text of the grammar. It is cut off after `tokens_max` tokens.
inline std::string random_text(const std::shared_ptr<const CompiledGrammar>& compiled,
                               Random& random, size_t tokens_max, bool& ended) {
  Grammar grammar(compiled);
  const TokenPieces pieces = test_pieces();
  std::string text;
  ended = false;
  for (size_t i = 0; i < tokens_max && !ended; ++i) {
    std::vector<float> row(pieces.pieces.size(), 0.0F);
    grammar.mask(row);
    std::vector<Token> open;
    for (Token token = 0; token < static_cast<Token>(row.size()); ++token) {
      // Skips the bytes of UTF-8 sequences: chosen at random they are rarely valid.
      if (row[token] == 0.0F && (token < 0x80 || token > 0xFF)) {
        open.push_back(token);
      }
    }
    if (open.empty()) {
      break;
    }
    // Without this, white space would soon fill most texts, and letters the strings.
    Token token = open[random.below(open.size())];
    for (const Token likely : {kTestEnd, Token{'"'}, Token{'}'}}) {
      if (random.below(4) == 0 && std::find(open.begin(), open.end(), likely) != open.end()) {
        token = likely;
      }
    }
    ended = token == kTestEnd;
    text += pieces.pieces[token];
    if (!grammar.accept(token).has_value()) {
      return "REFUSED: " + text;
    }
  }
  return text;
}

}  // namespace pdjob::engine
