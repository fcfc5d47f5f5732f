#include "common/json/json_writer.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace pdjob {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  append_json_escaped(out, text);
  return out;
}

constexpr const char* kReplacement = "\xEF\xBF\xBD";

TEST(JsonWriter, PutsCommasBetweenValuesOnly) {
  std::string out = "before ";
  JsonWriter json(out);
  json.begin_object();
  json.key("a")
      .begin_array()
      .integer(1)
      .integer(-2)
      .begin_array()
      .end_array()
      .begin_object()
      .end_object()
      .end_array();
  json.key("b").null().key("c").boolean(true).key("d").raw("{}").key("e").string("x");
  json.end_object();
  EXPECT_EQ(out, R"(before {"a":[1,-2,[],{}],"b":null,"c":true,"d":{},"e":"x"})");
}

// Readers of server-sent events, such as httpx, end a line at them.
TEST(JsonWriter, EscapesUnicodesLineEnds) {
  EXPECT_EQ(escaped("a\xC2\x85"
                    "b\xE2\x80\xA8"
                    "c\xE2\x80\xA9"),
            "a\\u0085b\\u2028c\\u2029");
  EXPECT_EQ(escaped("\xC2\x86\xE2\x80\xA7\xE2\x80\xAA"), "\xC2\x86\xE2\x80\xA7\xE2\x80\xAA");
  for (const char* control : {"\x0b", "\x0c", "\x1c", "\x1d", "\x1e"}) {
    EXPECT_TRUE(escaped(control).starts_with("\\u00"));
  }
}

TEST(JsonWriter, WritesIntegersOfAllSizes) {
  std::string out;
  JsonWriter json(out);
  json.begin_array()
      .integer(std::numeric_limits<int64_t>::min())
      .integer(std::numeric_limits<uint64_t>::max());
  json.integer(uint8_t{255}).integer(int16_t{-1}).end_array();
  EXPECT_EQ(out, "[-9223372036854775808,18446744073709551615,255,-1]");
}

TEST(JsonWriter, WritesTheShortestNumbersAndNullForWhatIsNotFinite) {
  std::string out;
  JsonWriter json(out);
  json.begin_array().number(0.1F).number(0.1).number(-1e30F).number(-0.0F).number(5.0);
  json.number(std::nanf("")).number(-std::numeric_limits<double>::infinity()).end_array();
  EXPECT_EQ(out, "[0.1,0.1,-1e+30,-0,5,null,null]");
}

TEST(JsonWriter, LongestNumbersFit) {
  std::string out;
  JsonWriter json(out);
  json.number(-std::numeric_limits<double>::denorm_min())
      .number(-std::numeric_limits<double>::max());
  json.number(-2.2250738585072014e-308).number(-1.25e-5);
  EXPECT_EQ(out, "-5e-324,-1.7976931348623157e+308,-2.2250738585072014e-308,-1.25e-05");
}

TEST(JsonEscape, EscapesWhatJsonForbids) {
  EXPECT_EQ(escaped("plain"), "plain");
  EXPECT_EQ(escaped(""), "");
  EXPECT_EQ(escaped("\"\\/\n\r\t"), "\\\"\\\\/\\n\\r\\t");
  EXPECT_EQ(escaped(std::string_view("\0\x01\x1f\x7f", 4)), "\\u0000\\u0001\\u001f\x7f");
}

TEST(JsonEscape, KeepsWellFormedUtf8) {
  const std::string text =
      "\u00e9\u20ac\U0001F600 \u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff";
  EXPECT_EQ(escaped(text), text);
}

TEST(JsonEscape, ReplacesEachBrokenCharacterOnce) {
  const std::string r = kReplacement;
  EXPECT_EQ(escaped("\xff"), r);
  EXPECT_EQ(escaped("\x80\x80"), r + r);                  // Continuation bytes without a start.
  EXPECT_EQ(escaped("a\xe2\x82"), "a" + r);               // Cut off at the end.
  EXPECT_EQ(escaped("\xe2\x82z"), r + "z");               // Cut off by a letter.
  EXPECT_EQ(escaped("\xc0\xaf"), r + r);                  // Overlong.
  EXPECT_EQ(escaped("\xe0\x80\x80"), r + r + r);          // Overlong.
  EXPECT_EQ(escaped("\xed\xa0\x80"), r + r + r);          // A surrogate.
  EXPECT_EQ(escaped("\xf4\x90\x80\x80"), r + r + r + r);  // Beyond U+10FFFF.
  EXPECT_EQ(escaped("\xf0\x9f\x98\""), r + "\\\"");
}

}  // namespace
}  // namespace pdjob
