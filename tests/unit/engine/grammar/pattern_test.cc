#include "engine/grammar/pattern.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

TEST(Pattern, EveryClassNamesItsCharacters) {
  EXPECT_EQ(translate_pattern("^[0-9]{3}$").value(), "^[0-9]{3}$");
  EXPECT_EQ(translate_pattern(R"(^\d+\.\w?$)").value(), R"(^[0-9]+\.[0-9A-Z_a-z]?$)");
  EXPECT_EQ(translate_pattern("^.$").value(), R"(^[^\x00-\x1f"\\]$)");
  EXPECT_EQ(translate_pattern("^[^a-c]*$").value(), R"(^[^\x00-\x1f"\\a-c]*$)");
  EXPECT_EQ(translate_pattern(R"(^(?:a|b){2,}[\w.-]{1,4}$)").value(),
            R"(^(a|b){2,}[0-9A-Z_a-z\.\-]{1,4}$)");
  EXPECT_EQ(translate_pattern(R"(^\/x\-\$$)").value(), R"(^\/x\-\$$)");
}

// JSON Schema searches: a pattern without anchors may match anywhere in the string.
TEST(Pattern, WithoutAnchorsItIsRefused) {
  for (const char* pattern : {"[0-9]{3}", "^a", "a$", "", "^", "^a|b$", "^a$|^b$"}) {
    EXPECT_FALSE(translate_pattern(pattern).has_value()) << pattern;
  }
}

TEST(Pattern, WhatCannotBeFollowedExactlyIsRefused) {
  for (const char* pattern : {"^(?=a)b$",    "^(?!a)b$",    "^(?<n>a)$",
                              R"(^(a)\1$)",  R"(^\bword$)", R"(^\D$)",
                              R"(^\u0041$)", R"(^\n$)",     R"(^a"b$)",
                              R"(^a\\b$)",   R"(^["]$)",    R"(^[\\]$)",
                              R"(^[!-a]$)",  "^a**$",       "^a+?$",
                              "^a{2}{3}$",   "^a{3,2}$",    "^a{$",
                              "^a{x}$",      "^a{9999}$",   "^((a{99}){99})$",
                              "^(a$",        "^a)$",        "^[a$",
                              "^[]$",        "^*$",         "^]$",
                              R"(^[\d-z]$)", R"(^[a-\d]$)", "^\xc3\xa9$",
                              "^a\tb$",      "^a^b$",       R"(^a\$)"}) {
    EXPECT_FALSE(translate_pattern(pattern).has_value()) << pattern;
  }
  EXPECT_FALSE(translate_pattern("^" + std::string(5000, 'a') + "$").has_value());
  EXPECT_FALSE(
      translate_pattern("^" + std::string(50, '(') + std::string(50, ')') + "$").has_value());
}

}  // namespace
}  // namespace pdjob::engine
