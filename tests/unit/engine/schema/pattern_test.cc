#include "engine/schema/pattern.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/unit/engine/grammar/grammar_rig.h"

namespace pdjob::engine {
namespace {

TEST(Pattern, EveryClassNamesItsCharacters) {
  EXPECT_EQ(translate_pattern("^[0-9]{3}$").value(), "^[0-9]{3}$");
  EXPECT_EQ(translate_pattern(R"(^\d+\.\w?$)").value(), R"(^[0-9]+\.[0-9A-Z_a-z]?$)");
  EXPECT_EQ(translate_pattern("^[^\\x00-\\xff]$").value(),
            R"(^[\u{100}-\u{d7ff}\u{e000}-\u{10ffff}]$)");
  EXPECT_EQ(translate_pattern(R"(^(?:a|b){2,}[\w.-]{1,4}$)").value(),
            R"(^(a|b){2,}[\-\.0-9A-Z_a-z]{1,4}$)");
  EXPECT_EQ(translate_pattern(R"(^\/x\-\$$)").value(), R"(^\/x\-\$$)");
  EXPECT_EQ(translate_pattern("^[a-zäöü]+$").value(), R"(^[a-z\u{e4}\u{f6}\u{fc}]+$)");
  EXPECT_EQ(translate_pattern(R"(^[\u4e00-\u9fa5]{2}$)").value(), R"(^[\u{4e00}-\u{9fa5}]{2}$)");
  EXPECT_TRUE(translate_pattern(R"(^\p{L}+$)").value().starts_with("^[A-Za-z"));
  EXPECT_EQ(translate_pattern(R"(^a"\\\n$)").value(), R"(^a(\\")(\\\\)(\\n)$)");
  EXPECT_EQ(translate_regex(R"(a"\n|^b$)").value(), R"(^(a"\x0a|b)$)");
}

// JSON Schema searches: a pattern without anchors may match anywhere in the string.
TEST(Pattern, WithoutAnchorsAnythingMaySurroundIt) {
  const std::string any = translate_pattern("^a").value().substr(2);
  EXPECT_TRUE(any.ends_with("*$")) << any;
  EXPECT_EQ(translate_pattern("[0-9]{3}").value().find("[0-9]{3}"), any.size());
  EXPECT_EQ(translate_pattern("^a$|^b$").value(), "^(a|b)$");
  EXPECT_EQ(translate_pattern("^(a|b)$").value(), "^(a|b)$");
  EXPECT_EQ(translate_pattern("(^a$)|(^b$)").value(), "^(a|b)$");
  for (const char* everything : {"", ".*", "^.*", "a*", "^", "$", "a|b*"}) {
    EXPECT_EQ(translate_pattern(everything).value(), "") << everything;
  }
}

TEST(Pattern, ALengthBesideItIsKept) {
  const auto fitted = [](const char* pattern, int64_t least, int64_t most) {
    const auto out = translate_pattern(pattern, {.least = least, .most = most});
    return out ? *out : out.error().message;
  };
  EXPECT_EQ(fitted("^[a-z]+$", 2, 9), "^[a-z]{2,9}$");
  EXPECT_EQ(fitted("^[a-z]{3}$", 1, 9), "^[a-z]{3}$");
  EXPECT_EQ(fitted("^a[b-d]*-[ef]*$", 0, 12), "^a[b-d]{0,5}\\-[ef]{0,5}$");
  EXPECT_EQ(fitted("^(a{5}|b{2})$", 3, 9), "^(a{5})$");
  EXPECT_EQ(fitted("^[a-z]{3}$", 4, 9), "does not fit minLength and maxLength");
}

TEST(Pattern, AnOptionalSequenceIsWholeOrNotThere) {
  const auto grammar =
      compile(StructureKind::kSchema, R"({"type":"string","pattern":"^T(ab+)?Z$"})").value();
  for (const char* text : {R"("TZ")", R"("TabZ")", R"("TabbbZ")"}) {
    EXPECT_TRUE(follows(grammar, text)) << text;
  }
  for (const char* text : {R"("TbZ")", R"("TbbZ")", R"("TaZ")"}) {
    EXPECT_FALSE(follows(grammar, text)) << text;
  }
}

TEST(Pattern, PatternsOfOneTextAreJoinedIfTheyLeaveEachOtherRoom) {
  EXPECT_EQ(join_patterns("^a.*", R"(.*\.md$)"), R"(^a.*.*.*\.md$)");
  EXPECT_EQ(join_patterns("z$", "^a"), "^a.*z$");
  EXPECT_EQ(join_patterns("x", "^a"), "^a.*x");
  EXPECT_EQ(join_patterns("z$", "x[|^$]"), "x[|^$].*z$");
  EXPECT_EQ(join_patterns("^(a|b)", R"(\$)"), R"(^(a|b).*\$)");
  for (const auto& [one, other] :
       {std::pair{"^a", "^b"}, std::pair{"a$", "b$"}, std::pair{"^a$", "b"}, std::pair{"a|b", "c"},
        std::pair{"(a", "b)"}, std::pair{"^a\\", "b"}}) {
    EXPECT_EQ(join_patterns(one, other), std::nullopt) << one << " and " << other;
  }
}

TEST(Pattern, WhatCannotBeFollowedIsRefused) {
  for (const char* pattern : {"^(?=a)b$",
                              "^(?!a)b$",
                              R"(^(a)\1$)",
                              R"(^\bword$)",
                              R"(^\x00$)",
                              "^a**$",
                              "^a{3,2}$",
                              "^a{9999}$",
                              "^((a{99}){99})$",
                              "^(a$",
                              "^a)$",
                              "^[a$",
                              "^[]$",
                              "^*$",
                              R"(^[\d-z]$)",
                              R"(^[a-\d]$)",
                              "^a^b$",
                              R"(^a\)",
                              "^\xff$",
                              R"(^\p{Emoji}$)",
                              R"(^[^\p{L}]$)",
                              "^(?i)a$"}) {
    EXPECT_FALSE(translate_pattern(pattern).has_value()) << pattern;
  }
  EXPECT_FALSE(translate_pattern("^" + std::string(5000, 'a') + "$").has_value());
  EXPECT_FALSE(
      translate_pattern("^" + std::string(50, '(') + std::string(50, ')') + "$").has_value());
}

}  // namespace
}  // namespace pdjob::engine
