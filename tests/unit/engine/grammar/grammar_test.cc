#include "engine/grammar/grammar.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/engine/grammar/grammar_rig.h"

namespace pdjob::engine {
namespace {

TEST(Grammar, FollowsGbnf) {
  const auto compiled =
      compile(StructureKind::kGrammar, "root ::= \"yes, \" (\"sir\" | \"madam\")\n").value();
  EXPECT_TRUE(follows(compiled, "yes, sir"));
  EXPECT_TRUE(follows(compiled, "yes, madam"));
  EXPECT_FALSE(follows(compiled, "yes, "));
  EXPECT_FALSE(follows(compiled, "yes, sirs"));
}

TEST(Grammar, MaskAndAllowsAgree) {
  const auto compiled =
      compile(StructureKind::kGrammar, "root ::= [0-9]+ [.] [0-9]+ (\"\\n\" root)?").value();
  Grammar grammar(compiled);
  for (const char sign : std::string_view("12.5\n3.0")) {
    for (const bool allows_first : {true, false}) {
      Grammar fresh(compiled);
      std::vector<float> row(test_pieces().pieces.size(), 1.0F);
      if (!allows_first) {
        grammar.mask(row);
      }
      for (Token token = 0; token < static_cast<Token>(row.size()); ++token) {
        const bool allowed = grammar.allows(token);
        EXPECT_TRUE(allows_first || allowed == (row[token] == 1.0F)) << token;
      }
    }
    ASSERT_TRUE(grammar.accept(static_cast<unsigned char>(sign)).has_value());
  }
}

TEST(Grammar, OnlyAnEndMayFollowTheWholeText) {
  Grammar grammar(compile(StructureKind::kGrammar, "root ::= \"7\" \"8\"?").value());
  EXPECT_FALSE(grammar.finished());
  EXPECT_FALSE(grammar.allows(kTestEnd));
  ASSERT_TRUE(grammar.accept('7').has_value());
  EXPECT_FALSE(grammar.finished());
  EXPECT_TRUE(grammar.allows(kTestEnd));
  ASSERT_TRUE(grammar.accept('8').has_value());
  EXPECT_TRUE(grammar.finished());
  EXPECT_FALSE(grammar.allows('8'));
  ASSERT_TRUE(grammar.accept(kTestEnd).has_value());
  std::vector<float> row(test_pieces().pieces.size(), 1.0F);
  grammar.mask(row);
  EXPECT_EQ(row['8'], -INFINITY);
  EXPECT_EQ(row[kTestEnd], 1.0F);
  EXPECT_TRUE(grammar.accept(kTestEnd).has_value());
  EXPECT_FALSE(grammar.accept('8').has_value());
  EXPECT_FALSE(grammar.accept(-5).has_value());
}

// Regression: these 200 bytes kept libllama busy forever, because its time doubled with each x.
TEST(Grammar, AmbiguousTokensAreFollowedAtOnce) {
  std::string gbnf = "root ::=";
  for (int i = 0; i < 40; ++i) {
    gbnf += " x";
  }
  Grammar grammar(compile(StructureKind::kGrammar, gbnf + "\nx ::= \"#\" | \"##\"").value());
  std::vector<float> row(test_pieces().pieces.size(), 1.0F);
  for (int i = 0; i < 80; ++i) {
    grammar.mask(row);
    ASSERT_TRUE(grammar.accept('#').has_value()) << i;
  }
  EXPECT_TRUE(grammar.finished());
}

// In any parser, each token costs more than the one before. So a choice has a time limit.
TEST(Grammar, AGrammarThatBecomesTooAmbiguousFailsItsChoiceOnly) {
  Grammar grammar(
      compile(StructureKind::kGrammar, "root ::= s\ns ::= s s s | s s | \"a\" | \"\"").value());
  std::string problem;
  for (int i = 0; i < 20'000 && problem.empty(); ++i) {
    const Status accepted = grammar.accept('a');
    problem = accepted.has_value() ? "" : accepted.error().message;
  }
  EXPECT_EQ(problem, "the grammar is too ambiguous for this text");
}

TEST(Grammar, WrongOnesAreRefusedWithTheirPlace) {
  const auto refusal = [](std::string_view gbnf) {
    const auto compiled = compile(StructureKind::kGrammar, gbnf);
    return compiled.has_value() ? "accepted" : compiled.error().message;
  };
  EXPECT_EQ(refusal("root ::= other"),
            "EBNF parser error at line 1, column 10: Rule \"other\" is not defined");
  EXPECT_EQ(refusal("root ::= \"a"),
            "EBNF lexer error at line 1, column 12: Expect \" in string literal");
  for (const std::string gbnf :
       {"nonsense", "start ::= \"a\"", "root ::= [a", "root ::= (\"a\"", "root ::= .",
        "root ::= \"a\"{99999999999999999999}", "root ::= \"\\x", "root ::= \"a\"{2001,}",
        "root ::= \"\\x4142\"", "root ::= Regex(\"a\")", "root[lazy] ::= \"a\"",
        "root ::= \"a\" (=\"b\")", "root ::= ((\"a\"{2000}){2000}){2000}",
        "root ::= \"a\"{2000}{2000}"}) {
    EXPECT_NE(refusal(gbnf), "accepted") << gbnf;
  }
  EXPECT_EQ(refusal(std::string("\0root", 5)), "line 1 of the grammar is too long, or not text");
  EXPECT_EQ(refusal("root ::= " + std::string(60'000, '(')),
            "line 1 of the grammar is nested too deeply");
  EXPECT_EQ(refusal("root ::= \"" + std::string(5000, 'a') + "\"{2000}"),
            "line 1 of the grammar has a text of more than 4096 bytes");
  EXPECT_EQ(refusal("root ::= a\na ::= \"" + std::string(100, 'a') + "\"{2000}"),
            "line 2 of the grammar repeats too much");
}

std::string compiled_bytes(StructureKind kind, std::string_view text) {
  GrammarCompiler compiler(test_tokens());
  return compiler.compile(kind, check_structure(kind, text).value().text).value();
}

// The bytes that the compiler's process could hand over if an attacker controlled it.
TEST(CompiledGrammar, DamagedBytesAreRefusedOrHarmless) {
  const std::string bytes = compiled_bytes(
      StructureKind::kSchema, R"({"properties":{"a":{"maxLength":30,"type":"string"}}})");
  ASSERT_TRUE(CompiledGrammar::read(test_tokens(), bytes).has_value());
  for (const std::string& damaged : {std::string(), std::string("{}"), bytes + "x", "x" + bytes}) {
    EXPECT_EQ(CompiledGrammar::read(test_tokens(), damaged).error().code, ErrorCode::kCorrupt);
  }
  for (size_t size = 0; size < bytes.size(); size += 97) {
    EXPECT_FALSE(CompiledGrammar::read(test_tokens(), bytes.substr(0, size)).has_value()) << size;
  }
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = bytes;
    damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
    if (const auto compiled = CompiledGrammar::read(test_tokens(), damaged)) {
      Grammar grammar(*compiled);
      std::vector<float> row(test_pieces().pieces.size(), 0.0F);
      grammar.mask(row);
    }
  }
}

// The library's own text of it repeats the whole automaton for each rule.
TEST(CompiledGrammar, ItsBytesGrowWithTheSchemaAndNotWithItsSquare) {
  const auto size_of = [](int strings) {
    std::string properties;
    for (int i = 0; i < strings; ++i) {
      properties += std::string(i > 0 ? "," : "") + "\"p" + std::to_string(i) +
                    "\":{\"type\":\"string\",\"maxLength\":100}";
    }
    return compiled_bytes(StructureKind::kSchema, "{\"properties\":{" + properties + "}}").size();
  };
  const size_t ten = size_of(10);
  EXPECT_LT(size_of(40), 5 * ten);
  EXPECT_LT(ten, 400'000U);
}

TEST(CompiledGrammar, PiecesSurviveTheirWayToAnotherProcess) {
  const TokenPieces pieces = test_pieces();
  const std::string bytes = write_pieces(pieces);
  const TokenPieces back = read_pieces(bytes).value();
  EXPECT_EQ(back.pieces, pieces.pieces);
  EXPECT_EQ(back.ends, pieces.ends);
  for (size_t size = 0; size < bytes.size(); size += 7) {
    EXPECT_FALSE(read_pieces(bytes.substr(0, size)).has_value());
  }
}

}  // namespace
}  // namespace pdjob::engine
