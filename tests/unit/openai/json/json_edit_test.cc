#include "openai/json/json_edit.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/limits.h"
#include "common/random.h"

namespace pdjob::openai {
namespace {

struct EditCase {
  std::string text;
  std::vector<JsonEdit> edits;
  std::string expected;
};

// Each ~ becomes so many spaces.
std::string with_gaps(std::string_view text, size_t spaces) {
  std::string out;
  for (const char c : text) {
    out.append(c == '~' ? spaces : 1, c == '~' ? ' ' : c);
  }
  return out;
}

TEST(JsonObject, BracketsInsideOfValuesMustMatch) {
  const auto scans = [](const std::string& text) {
    return JsonObject::scan(text, std::array<std::string_view, 1>{"max_tokens"}).has_value();
  };
  for (const std::string& text :
       {std::string(R"({"x":[},"max_tokens":1})"), std::string(R"({"x":[}})"),
        std::string(R"({"x":{]},"max_tokens":1})"), std::string(R"({"x":[{]}]})"),
        with_gaps(R"({"x":[~{"a":1]~]})", 100),
        with_gaps(R"({"x":["~]}"},"max_tokens":1})", 100)}) {
    EXPECT_FALSE(scans(text)) << text;
  }
  for (const std::string& text :
       {std::string(R"({"x":[{"}":"]"},[]],"max_tokens":1})"), std::string(R"({"x":"[}"})"),
        std::string(R"({"x":["\\",{"a\"]":[1,2]}]})"), with_gaps(R"({"x":[~{"a":[1]}~]})", 100)}) {
    EXPECT_TRUE(scans(text)) << text;
  }
}

// The scanner looks for brackets sixteen bytes at a time.
TEST(JsonObject, BracketsAndQuotesCountWhereverTheyStand) {
  for (size_t gap = 0; gap < 40; ++gap) {
    for (const auto& [text, good] : std::initializer_list<std::pair<std::string, bool>>{
             {R"({"x":[~"\\",~"\\\"]}"~],"max_tokens":1})", true},
             {R"({"x":[~"\\"]~,"\\\"]}"~],"max_tokens":1})", false},
             {R"({"x":{~"a\"":[1~]~},"max_tokens":1})", true},
             {R"({"x":{~"a\"":[1~}~],"max_tokens":1})", false},
             {R"({"x":[~"}]]~"~],"max_tokens":1})", true}}) {
      const std::string wide = with_gaps(text, gap);
      EXPECT_EQ(JsonObject::scan(wide, std::array<std::string_view, 1>{"max_tokens"}).has_value(),
                good)
          << wide;
    }
  }
}

TEST(JsonObject, OfAReplyOnlyTheBracketsOfNamedValuesAreLookedAt) {
  const auto scans = [](const std::string& text) {
    constexpr std::array<std::string_view, 1> kNames = {"named"};
    return JsonObject::scan(text, JsonNames(kNames), JsonObject::Check::kNamed).has_value();
  };
  EXPECT_TRUE(scans(R"({"other":[[}],"named":{"a":[1]}})"));
  EXPECT_FALSE(scans(R"({"other":[[]],"named":{"a":[1}}})"));
}

TEST(JsonObject, NestsNoDeeperThanAWorkerReads) {
  for (size_t levels = 60; levels < 70; ++levels) {
    const std::string text = "{\"x\":" + std::string(levels, '[') + std::string(levels, ']') + "}";
    EXPECT_EQ(JsonObject::scan(text, std::array<std::string_view, 1>{"y"}).has_value(),
              levels + 1 < limits::kJsonDepthMax)
        << levels;
  }
}

TEST(JsonEdit, ChangesOnlyWhatItNames) {
  const std::vector<EditCase> cases = {
      {R"({"a":1})", {}, R"({"a":1})"},
      {R"({"a":1})", {{"a", "2"}}, R"({"a":2})"},
      {R"({"a":1,"b":2})", {{"b", "[3]"}}, R"({"a":1,"b":[3]})"},
      {R"({"a":1})", {{"b", "2"}}, R"({"a":1,"b":2})"},
      {R"({})", {{"b", "2"}}, R"({"b":2})"},
      {R"( { } )", {{"b", "2"}, {"c", "3"}}, R"( {"b":2,"c":3 } )"},
      {R"({})", {{"b", ""}}, R"({})"},
      {R"({"a":1})", {{"a", ""}}, R"({})"},
      {R"({ "a" : 1 })", {{"a", ""}, {"b", "2"}}, R"({"b":2 })"},
      {R"({"a":1,"b":2,"c":3})", {{"a", ""}}, R"({"b":2,"c":3})"},
      {R"({"a":1,"b":2,"c":3})", {{"b", ""}}, R"({"a":1,"c":3})"},
      {R"({"a":1,"b":2,"c":3})", {{"c", ""}}, R"({"a":1,"b":2})"},
      {R"({"a":1,"b":2,"c":3})", {{"a", ""}, {"b", ""}}, R"({"c":3})"},
      {R"({"a":1,"b":2,"c":3})", {{"b", ""}, {"c", ""}}, R"({"a":1})"},
      {R"({"a":1,"b":2,"c":3})", {{"a", ""}, {"c", ""}}, R"({"b":2})"},
      {R"({"a":1,"b":2,"c":3})", {{"a", ""}, {"b", ""}, {"c", ""}, {"d", "4"}}, R"({"d":4})"},
      {R"({"a":1,"b":2,"c":3})", {{"a", ""}, {"b", "5"}}, R"({"b":5,"c":3})"},
      {"{ \"x\" : 1.50 ,\n\t\"a\" : \"q\" ,\r\n \"y\" : 1e5 }\n",
       {{"a", "true"}},
       "{ \"x\" : 1.50 ,\n\t\"a\" : true ,\r\n \"y\" : 1e5 }\n"},
      // Repeated names, and names in other spellings.
      {R"({"a":1,"b":2,"a":3})", {{"a", "9"}}, R"({"a":9,"b":2,"a":9})"},
      {R"({"a":1,"a":2,"a":3})", {{"a", ""}}, R"({})"},
      {R"({"\u0061":1,"x":"\"a\":1"})", {{"a", "9"}}, R"({"\u0061":9,"x":"\"a\":1"})"},
      // Below the top level everything stays unchanged.
      {R"({"x":{"a":1},"y":[{"a":2}],"a":{"a":[]}})",
       {{"a", "0"}},
       R"({"x":{"a":1},"y":[{"a":2}],"a":0})"},
      {R"({"a":"}{][,:\\\"","b":2})", {{"b", "3"}}, R"({"a":"}{][,:\\\"","b":3})"},
  };
  for (const EditCase& edit : cases) {
    const auto result = edit_json_object(edit.text, edit.edits);
    ASSERT_TRUE(result.has_value()) << edit.text;
    EXPECT_EQ(*result, edit.expected) << edit.text;
  }
}

TEST(JsonEdit, RefusesWhatIsNotOneObject) {
  for (const std::string text : {"",
                                 " ",
                                 "null",
                                 "1",
                                 "\"a\"",
                                 "[]",
                                 "{",
                                 "}",
                                 "{\"a\":1",
                                 "{\"a\":1}}",
                                 "{\"a\":1} x",
                                 "{\"a\":1} {\"a\":2}",
                                 "{\"a\":1},",
                                 "{\"a\"}",
                                 "{\"a\":}",
                                 "{\"a\":,\"b\":1}",
                                 "{\"a\" 1}",
                                 "{\"a\":1 2}",
                                 "{\"a\":1,}",
                                 "{,}",
                                 "{\"a\":1,,\"b\":2}",
                                 "{a:1}",
                                 "{'a':1}",
                                 "{\"a\":[}",
                                 "{\"a\":\"x}",
                                 "{\"a\":1 \"b\":2}",
                                 "{\"\\ud800\":1}",
                                 "{\"a\n\":1}",
                                 "{\"a\":\"\xff\"}",
                                 "\xef\xbb\xbf{}x"}) {
    EXPECT_FALSE(edit_json_object(text, std::vector<JsonEdit>{{"a", "1"}}).has_value()) << text;
  }
}

TEST(JsonEdit, SurvivesDeepNesting) {
  const std::string deep =
      R"({"x":)" + std::string(100000, '[') + std::string(100000, ']') + R"(,"a":1})";
  EXPECT_FALSE(edit_json_object(deep, std::vector<JsonEdit>{{"a", "2"}}).has_value());
}

TEST(JsonEdit, EditsALargeBody) {
  std::string text = R"({"prompt":[)";
  for (int i = 0; i < 500000; ++i) {
    text += std::to_string(i) + ",";
  }
  text += R"(0],"stream":true})";
  const std::vector<JsonEdit> edits = {{"stream", "false"}};
  std::string expected = text;
  expected.replace(expected.size() - 5, 4, "false");
  text.shrink_to_fit();  // Without room to parse in place,
  EXPECT_TRUE(edit_json_object(text, edits).value() == expected);
  text.reserve(text.size() + 64);  // and with room.
  EXPECT_TRUE(edit_json_object(text, edits).value() == expected);
}

TEST(JsonObject, HandsOutValuesAsTheyStand) {
  const std::string text =
      R"({ "model" : "m\u0031" , "n":2,"messages" : [ {"role":"user"} ] ,"n" : 3 })";
  const std::vector<std::string_view> names = {"model", "n", "messages", "stream"};
  const auto object = JsonObject::scan(text, names);
  ASSERT_TRUE(object.has_value());
  EXPECT_EQ(object->value("model"), R"("m\u0031")");
  EXPECT_EQ(json_string(object->value("model")), "m1");
  EXPECT_EQ(object->value("n"), "3");
  EXPECT_EQ(object->value("messages"), R"([ {"role":"user"} ])");
  EXPECT_EQ(object->value("stream"), "");
  EXPECT_EQ(json_string(object->value("n")), std::nullopt);
  EXPECT_EQ(json_string(R"("\q")"), std::nullopt);
  EXPECT_EQ(json_string(R"(")"), std::nullopt);
  EXPECT_EQ(json_string(R"("plain")"), "plain");
}

TEST(JsonObject, ComposesSeveralBodiesFromOneScan) {
  const std::string text =
      R"({"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":7})";
  const std::vector<std::string_view> names = {"model", "stream", "stream_options", "max_tokens",
                                               "kv_transfer_params"};
  const auto object = JsonObject::scan(text, names);
  ASSERT_TRUE(object.has_value());
  EXPECT_EQ(object->edited(std::vector<JsonEdit>{{"stream", "false"},
                                                 {"stream_options", ""},
                                                 {"max_tokens", "1"},
                                                 {"kv_transfer_params", "{}"}}),
            R"({"model":"m","stream":false,"max_tokens":1,"kv_transfer_params":{}})");
  EXPECT_EQ(
      object->edited(std::vector<JsonEdit>{{"kv_transfer_params", R"({"x":1})"}}),
      R"({"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"kv_transfer_params":{"x":1}})");
}

// A slow oracle makes the same edits on a parsed document, over random objects, spacings and
// repetitions.
TEST(JsonEdit, AgreesWithAParsedDocument) {
  using Json = nlohmann::ordered_json;
  Random random(7);
  const std::vector<std::string_view> names = {"a", "b", "c", "d"};
  const std::vector<std::string_view> spellings = {R"("a")", R"("\u0061")", R"("b")",
                                                   R"("c")", R"("e")",      R"("f")"};
  const std::vector<std::string_view> values = {"1",          "-2.5e3", "\"s,}\"", "[1,{\"a\":2}]",
                                                "{\"b\":[]}", "null",   "true"};
  const std::vector<std::string_view> spaces = {"", "", " ", "\n\t"};
  const auto space = [&] { return std::string(spaces[random.below(spaces.size())]); };
  for (int round = 0; round < 3000; ++round) {
    std::string text = space() + "{" + space();
    const size_t members = random.below(6);
    for (size_t i = 0; i < members; ++i) {
      text += (i > 0 ? "," + space() : "") +
              std::string(spellings[random.below(spellings.size())]) + space() + ":" + space() +
              std::string(values[random.below(values.size())]) + space();
    }
    text += "}" + space();
    std::vector<JsonEdit> edits;
    for (const std::string_view name : names) {
      if (random.chance(0.6)) {
        edits.push_back(
            {name, random.chance(0.4) ? std::string_view() : values[random.below(values.size())]});
      }
    }
    Json expected = Json::parse(text);
    for (const JsonEdit& edit : edits) {
      if (edit.value.empty()) {
        expected.erase(std::string(edit.name));
      } else {
        expected[std::string(edit.name)] = Json::parse(edit.value);
      }
    }
    const auto result = edit_json_object(text, edits);
    ASSERT_TRUE(result.has_value()) << text;
    const Json got = Json::parse(*result, nullptr, false);
    ASSERT_FALSE(got.is_discarded()) << text << " became " << *result;
    ASSERT_EQ(nlohmann::json(got), nlohmann::json(expected)) << text << " became " << *result;
  }
}

TEST(JsonMembers, AreThereInTheirOrderAsTheyStand) {
  const std::string text = R"( { "b" : [1, {"x": 2}] , "\u0061":"q, \"}" ,"b":null } )";
  const auto members = json_members(text);
  ASSERT_TRUE(members.has_value());
  ASSERT_EQ(members->size(), 3U);
  EXPECT_EQ((*members)[0].name, "b");
  EXPECT_EQ((*members)[0].value, R"([1, {"x": 2}])");
  EXPECT_EQ((*members)[1].name, "a");
  EXPECT_EQ((*members)[1].value, R"("q, \"}")");
  EXPECT_EQ((*members)[2].value, "null");
  const std::string none = "{}";
  EXPECT_TRUE(json_members(none)->empty());
  for (const std::string wrong : {"[1]", R"({"a":1} 2)"}) {
    EXPECT_FALSE(json_members(wrong)) << wrong;
  }
}

std::string compact(std::string_view json) {
  std::string out;
  append_compact(out, json);
  return out;
}

TEST(CompactJson, HasNoWhiteSpaceButInsideStrings) {
  EXPECT_EQ(compact("[ 1 ,\n\t{ \"a b\" : \" c\\\" d \" } ]"), "[1,{\"a b\":\" c\\\" d \"}]");
  EXPECT_EQ(compact(" true "), "true");
  EXPECT_EQ(compact("\"\\"), "\"\\");
}

TEST(CompactJson, KeepsTokensApart) {
  EXPECT_NE(compact("[1 2]"), compact("[12]"));
  EXPECT_EQ(compact("[1  2]"), compact("[1 2]"));
}

TEST(JsonArrayItems, AreTheTextsOfItsObjects) {
  using Items = std::vector<std::string>;
  EXPECT_EQ(json_array_items(R"([{"a":[{"b":1}]}, {"c":"}\"{"}])"),
            (Items{R"({"a":[{"b":1}]})", R"({"c":"}\"{"})"}));
  EXPECT_EQ(json_array_items("[]"), Items{});
  EXPECT_EQ(json_array_items(""), Items{});
  EXPECT_EQ(json_array_items("[1, \"{}\"]"), Items{});
  EXPECT_EQ(json_array_items("[{\"a\":1"), Items{});
}

}  // namespace
}  // namespace pdjob::openai
