#include "engine/text_stream.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

struct Shown {
  std::string text;
  bool stopped = false;
};

Shown run(const StopParams& stop, const std::vector<std::string>& pieces) {
  TextStream stream(stop);
  Shown shown;
  for (const std::string& piece : pieces) {
    if (stream.push(piece, shown.text)) {
      shown.stopped = true;
      return shown;
    }
  }
  stream.finish(shown.text);
  return shown;
}

StopParams stops(std::vector<std::string> strings) {
  StopParams params;
  params.strings = std::move(strings);
  return params;
}

// Every way to cut `text` into pieces gives the same result.
void expect_however_cut(const StopParams& stop, const std::string& text, const Shown& expected) {
  ASSERT_LE(text.size(), 14U);
  for (uint32_t cuts = 0; cuts < 1U << (text.size() - 1); ++cuts) {
    std::vector<std::string> pieces(1);
    for (size_t i = 0; i < text.size(); ++i) {
      pieces.back() += text[i];
      if ((cuts >> i & 1) != 0) {
        pieces.emplace_back();
      }
    }
    const Shown shown = run(stop, pieces);
    ASSERT_EQ(shown.text, expected.text) << "cuts " << cuts;
    ASSERT_EQ(shown.stopped, expected.stopped) << "cuts " << cuts;
  }
}

TEST(TextStream, AStopStringPassesBeforeItCounts) {
  TextStream stream(stops({"ab", "xaby"}));
  std::string out;
  EXPECT_FALSE(stream.push("1ab2", out, TextStream::Stops::kPass));
  EXPECT_EQ(out, "1ab2") << "shown at once";
  EXPECT_FALSE(stream.push("xab", out, TextStream::Stops::kPass));
  EXPECT_FALSE(stream.push("z", out)) << "it ended before stop strings count";
  EXPECT_EQ(out, "1ab2xabz");
  EXPECT_FALSE(stream.push("a", out, TextStream::Stops::kPass));
  EXPECT_TRUE(stream.push("b", out)) << "it ends in a token that counts";
  EXPECT_EQ(out, "1ab2xabz");
  EXPECT_EQ(stream.stop(), "ab");
}

TEST(TextStream, ShowsPlainTextAtOnce) {
  TextStream stream({});
  std::string out;
  EXPECT_FALSE(stream.push("Hello", out));
  EXPECT_EQ(out, "Hello");
  EXPECT_FALSE(stream.push(" there", out));
  EXPECT_EQ(out, "Hello there");
}

TEST(TextStream, HoldsACharacterUntilItIsWhole) {
  TextStream stream({});
  std::string out;
  stream.push("\xF0\x9F", out);
  EXPECT_EQ(out, "");
  stream.push("\x98", out);
  EXPECT_EQ(out, "");
  stream.push("\x80!", out);
  EXPECT_EQ(out, "\xF0\x9F\x98\x80!");
}

TEST(TextStream, ReplacesACharacterThatNeverBecomesWhole) {
  EXPECT_EQ(run({}, {"a\xE2\x82"}).text, "a\xEF\xBF\xBD");
  EXPECT_EQ(run({}, {"a\xE2\x82", "b"}).text,
            "a\xEF\xBF\xBD"
            "b");
}

TEST(TextStream, ReplacesInvalidBytes) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(run({}, {"\x80x"}).text, bad + "x");
  EXPECT_EQ(run({}, {"\xC0\xAF"}).text, bad + bad);                      // Overlong.
  EXPECT_EQ(run({}, {"\xED\xA0\x80"}).text, bad + bad + bad);            // Surrogate.
  EXPECT_EQ(run({}, {"\xF4\x90\x80\x80"}).text, bad + bad + bad + bad);  // Past U+10FFFF.
  EXPECT_EQ(run({}, {"\xFFok"}).text, bad + "ok");
}

TEST(TextStream, MultiByteTextDoesNotDependOnHowItIsCut) {
  expect_however_cut({}, "h\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z",
                     {"h\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", false});
  expect_however_cut({}, "\xE2\x28\xA1\xF0\x9F\x98",
                     {"\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD", false});
}

TEST(TextStream, EndsBeforeAStopString) {
  expect_however_cut(stops({"STOP"}), "go on STOP now", {"go on ", true});
}

TEST(TextStream, TellsWhichStopStringEndedIt) {
  TextStream stream(stops({"END", "STOP"}));
  std::string out;
  EXPECT_FALSE(stream.push("go ST", out));
  EXPECT_EQ(stream.stop(), "");
  EXPECT_TRUE(stream.push("OP END", out));
  EXPECT_EQ(stream.stop(), "STOP");
}

TEST(TextStream, EndsAfterAStopStringIfAsked) {
  StopParams params = stops({"\n\n"});
  params.include_stop_string = true;
  expect_however_cut(params, "one\n\ntwo", {"one\n\n", true});
}

TEST(TextStream, ShowsWhatOnlyLookedLikeAStop) {
  expect_however_cut(stops({"STOP"}), "STO STOLE ST", {"STO STOLE ST", false});
  // The beginning of a stop string may begin again inside itself.
  expect_however_cut(stops({"aab"}), "aaaab!", {"aa", true});
  expect_however_cut(stops({"abab!"}), "ababab!", {"ab", true});
}

TEST(TextStream, HoldsBackOnlyWhatMayBeAStop) {
  TextStream stream(stops({"</end>"}));
  std::string out;
  stream.push("text <", out);
  EXPECT_EQ(out, "text ");
  stream.push("/e", out);
  EXPECT_EQ(out, "text ");
  stream.push("m>", out);
  EXPECT_EQ(out, "text </em>");
}

TEST(TextStream, TheStopThatIsCompleteFirstCounts) {
  expect_however_cut(stops({"abcd", "bc"}), "xabcdy", {"xa", true});
  expect_however_cut(stops({"bc", "abcd"}), "xabcdy", {"xa", true});
  // If two stops end at the same byte, the longer one wins.
  expect_however_cut(stops({"bc", "abc"}), "xabcy", {"x", true});
}

TEST(TextStream, StopStringsMayBeMultiByte) {
  expect_however_cut(stops({"\xE3\x80\x82"}), "\xE4\xBD\xA0\xE3\x80\x81\xE3\x80\x82x",
                     {"\xE4\xBD\xA0\xE3\x80\x81", true});
}

TEST(TextStream, AStopAfterAnUnfinishedCharacterStillCounts) {
  expect_however_cut(stops({"END"}),
                     "a\xE2\x82"
                     "END",
                     {"a\xEF\xBF\xBD", true});
}

TEST(TextStream, EmptyStopStringsAreNone) {
  expect_however_cut(stops({"", ""}), "text", {"text", false});
}

TEST(TextStream, FinishShowsWhatWasHeldBack) {
  EXPECT_EQ(run(stops({"STOP"}), {"go ST"}).text, "go ST");
}

}  // namespace
}  // namespace pdjob::engine
