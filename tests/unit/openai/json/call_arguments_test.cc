#include "openai/json/call_arguments.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pdjob::openai {
namespace {

TEST(ReadableArguments, AnObjectStaysAsItIs) {
  for (const std::string text : {"{}", R"({"a": [1, {"b": "\u00e4]}"}]})", " {\"a\":1}\n"}) {
    EXPECT_EQ(readable_arguments(text), text);
  }
}

TEST(ReadableArguments, NothingIsAnEmptyObject) {
  for (const char* text : {"", " ", "\n", "null"}) {
    EXPECT_EQ(readable_arguments(text), "{}");
  }
}

TEST(ReadableArguments, CutOnesKeepWhatIsThere) {
  const std::vector<std::pair<std::string, std::string>> cut = {
      {"{", "{}"},
      {R"({"city)", "{}"},
      {R"({"city":)", "{}"},
      {R"({"city": "Par)", R"({"city": "Par"})"},
      {R"({"city": "Par\)", R"({"city": "Par"})"},
      {R"({"city": "Par\u00)", R"({"city": "Par"})"},
      {R"({"city": "Par\ud83d)", R"({"city": "Par"})"},
      {R"({"city": "Paris", "days)", R"({"city": "Paris"})"},
      {R"({"city": "Paris",)", R"({"city": "Paris"})"},
      {R"({"list": [1, 2, {"a": tru)", R"({"list": [1, 2, {}]})"},
      {R"({"list": [1, 2)", R"({"list": [1, 2]})"},
      {R"({"a": {"b": "c"})", R"({"a": {"b": "c"}})"},
  };
  for (const auto& [text, expected] : cut) {
    EXPECT_EQ(readable_arguments(text), expected) << text;
  }
}

TEST(ReadableArguments, OtherTextIsKeptInAnObject) {
  EXPECT_EQ(readable_arguments("city=Paris"), R"({"arguments":"city=Paris"})");
  EXPECT_EQ(readable_arguments("[1]"), R"({"arguments":"[1]"})");
  EXPECT_EQ(readable_arguments("{'a': 1}"), R"({"arguments":"{'a': 1}"})");
}

// Templates write the arguments by a function that calls itself for each level.
TEST(ReadableArguments, AreNeverNestedDeeply) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) {
    deep += "{\"a\":";
  }
  EXPECT_TRUE(readable_arguments(deep).starts_with("{\"arguments\":"));
}

TEST(ReadableArguments, EveryCutOfAnObjectIsAnObject) {
  const std::string whole =
      R"({"a":"x\"\\\n\ud83d\ude00","b":[1.5e3,true,null,{"c":{}}],"d":-2,"e":{"f":[[],""]}})";
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::string text = readable_arguments(whole.substr(0, size));
    EXPECT_TRUE(nlohmann::json::parse(text, nullptr, false).is_object()) << text;
    EXPECT_EQ(text.find("\"arguments\""), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace pdjob::openai
