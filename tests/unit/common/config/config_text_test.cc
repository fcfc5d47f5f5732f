#include "common/config/config_text.h"

#include <gtest/gtest.h>

#include "common/config/config_reader.h"

namespace pdjob {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(ConfigText, ReadsDurations) {
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("5s"), seconds(5));
  EXPECT_EQ(parse_duration("10min"), minutes(10));
  EXPECT_EQ(parse_duration("2h"), hours(2));
  EXPECT_EQ(parse_duration("0s"), seconds(0));
}

TEST(ConfigText, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "5", "s", "5 s", "1.5s", "-1s", "5m", "5S", "5sec", "9999999999999h",
                           "99999999999999999999999s"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(ConfigText, WritesDurationsInTheLargestExactUnit) {
  EXPECT_EQ(format_duration(hours(2)), "2h");
  EXPECT_EQ(format_duration(minutes(90)), "90min");
  EXPECT_EQ(format_duration(milliseconds(1500)), "1500ms");
  EXPECT_EQ(format_duration(nanoseconds(7)), "7ns");
  EXPECT_EQ(format_duration(Duration::zero()), "0s");
}

TEST(ConfigText, FindsTheNearestWord) {
  const std::vector<std::string> words = {"workers", "model", "port", "mode"};
  EXPECT_EQ(nearest_word("wrokers", words), "workers");
  EXPECT_EQ(nearest_word("modl", words), "model");
  EXPECT_EQ(nearest_word("prot", words), "");
  EXPECT_EQ(nearest_word("ports", words), "port");
  EXPECT_EQ(nearest_word("something", words), "");
  EXPECT_EQ(nearest_word(std::string(100'000, 'm'), words), "");
  EXPECT_EQ(nearest_word("", words), "");
}

TEST(ConfigText, WritesYamlThatReadsBackAsTheSameText) {
  EXPECT_EQ(yaml_text("--max-model-len=8192"), "--max-model-len=8192");
  EXPECT_EQ(yaml_text("0.0.0.0:8021"), "0.0.0.0:8021");
  EXPECT_EQ(yaml_text("it's"), "'it''s'");
  for (const std::string text : {"",
                                 "null",
                                 "~",
                                 "-",
                                 "---",
                                 "a: b",
                                 "a:",
                                 "# no comment",
                                 "a #b",
                                 "{x}",
                                 "[x]",
                                 "'",
                                 "\"q\"",
                                 "*a",
                                 "&a",
                                 "!a",
                                 "%a",
                                 "@a",
                                 "=",
                                 "..",
                                 "/p q",
                                 "two\nlines",
                                 "tab\tand \\ and \x1b",
                                 "é"}) {
    ConfigReader in = ConfigReader::parse(
        "", "list:\n  - " + yaml_text(text) + "\nkey: " + yaml_text(text) + "\n");
    std::vector<std::string> list;
    std::string value = "?";
    in.field("list", list, {""});
    in.field("key", value, {""});
    EXPECT_EQ(in.finish(), "");
    EXPECT_EQ(list, std::vector<std::string>{text});
    EXPECT_EQ(value, text);
  }
}

TEST(ConfigText, ShowsOneShortLine) {
  EXPECT_EQ(quote("a\nb"), "\"a?b\"");
  EXPECT_EQ(quote(std::string(50, 'x')), '"' + std::string(40, 'x') + "...\"");
}

}  // namespace
}  // namespace pdjob
