#include "router/json_members.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/random.h"

namespace pdjob::router {
namespace {

TEST(JsonMembers, TellsWhereMembersAre) {
  const std::string text = R"({"a" : [1,{"b":2}] , "c":"}"})";
  const auto members = json_members(text);
  ASSERT_TRUE(members);
  ASSERT_EQ(members->size(), 2U);
  const JsonMember& first = members->front();
  EXPECT_EQ(first.name, "a");
  EXPECT_EQ(text.substr(first.value_begin, first.value_end - first.value_begin), R"([1,{"b":2}])");
  EXPECT_EQ(text.substr(first.begin, first.end - first.begin), R"("a" : [1,{"b":2}] )");
  EXPECT_EQ(members->back().name, "c");
}

TEST(JsonMembers, UnescapesNames) {
  const auto members = json_members(
      R"({"mod\u0065l":1,"\"\\\/\b\n":2,"\ud83d\ude00":3,"\ud83d":4,"\u00e9\u20ac":5})");
  ASSERT_TRUE(members);
  EXPECT_EQ((*members)[0].name, "model");
  EXPECT_EQ((*members)[1].name, "\"\\/\b\n");
  EXPECT_EQ((*members)[2].name, "\xf0\x9f\x98\x80");
  EXPECT_EQ((*members)[3].name, "\xef\xbf\xbd");
  EXPECT_EQ((*members)[4].name, "\xc3\xa9\xe2\x82\xac");
}

TEST(JsonMembers, RefusesWhatIsNestedTooDeep) {
  EXPECT_TRUE(json_members("{\"a\":" + std::string(60, '[') + std::string(60, ']') + "}"));
  EXPECT_FALSE(json_members("{\"a\":" + std::string(100000, '[')));
}

// Another parser has the last word on what JSON is: texts with a few bytes changed are taken by
// both or by neither.
TEST(JsonMembers, AgreesWithAnotherParserOnDamagedTexts) {
  const std::string whole =
      R"({"a":[1,-2.5e+3,0,true,null,"x\n\u00e9"],"b":{"c":{},"d":[]} ,"":false, "e":1E5})";
  constexpr std::string_view kBytes = "{}[]\",:\\0123456789-+.eEtrufalsn \n\tx";
  Random random(7);
  size_t taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = whole;
    for (uint64_t change = 1 + random.below(3); change > 0; --change) {
      const size_t at = random.below(text.size());
      switch (random.below(3)) {
        case 0:
          text[at] = kBytes[random.below(kBytes.size())];
          break;
        case 1:
          text.erase(at, 1 + random.below(3));
          break;
        default:
          text.insert(at, 1, kBytes[random.below(kBytes.size())]);
      }
    }
    const auto parsed = nlohmann::json::parse(text, nullptr, false);
    ASSERT_EQ(json_members(text).has_value(), parsed.is_object()) << text;
    taken += parsed.is_object();
  }
  EXPECT_GT(taken, 1000U);
}

}  // namespace
}  // namespace pdjob::router
