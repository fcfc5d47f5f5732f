#include "common/config/words.h"

#include <gtest/gtest.h>

namespace pdjob {
namespace {

TEST(Words, KnownWordsAreFilledInAndAllElseStays) {
  const Words words = {{"port", "80"}, {"host", "h"}};
  EXPECT_EQ(fill_words("{host}:{port}/{other}", words), "h:80/{other}");
  EXPECT_EQ(fill_words(R"({"a":{"port":{port}}})", words), R"({"a":{"port":80}})");
  EXPECT_EQ(fill_words("{", words), "{");
  EXPECT_EQ(fill_words("{port", words), "{port");
  EXPECT_EQ(fill_words("{}", words), "{}");
  EXPECT_EQ(fill_words("{{port}}", words), "{80}");
  EXPECT_EQ(fill_words("", words), "");
}

TEST(Words, AWordsValueIsNotFilledInAgain) {
  EXPECT_EQ(fill_words("{a}", {{"a", "{b}"}, {"b", "no"}}), "{b}");
}

TEST(Words, OnlyAWholeWordIsOne) {
  EXPECT_EQ(only_word("{side_port}"), "side_port");
  for (const char* text : {"", "{}", "port", "{port} ", "x{port}", "{Port}", "{a}{b}"}) {
    EXPECT_EQ(only_word(text), "") << text;
  }
}

}  // namespace
}  // namespace pdjob
