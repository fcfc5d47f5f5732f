#include "engine/grammar/grammar.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/engine/grammar_rig.h"

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

// 200 bytes that kept libllama busy for ever: its time doubled with each x.
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

// Each token costs more than the one before, in any parser: a choice has only so much time.
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

TEST(CompiledGrammar, DamagedTextIsRefused) {
  GrammarCompiler compiler(test_tokens());
  const std::string text = compiler.compile(StructureKind::kGrammar, "root ::= [a-z]+").value();
  ASSERT_TRUE(CompiledGrammar::read(test_tokens(), text).has_value());
  for (const std::string& damaged :
       {std::string(), std::string("{}"), text.substr(0, text.size() / 2), "[" + text,
        std::string(100'000, '[')}) {
    EXPECT_EQ(CompiledGrammar::read(test_tokens(), damaged).error().code, ErrorCode::kCorrupt);
  }
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
