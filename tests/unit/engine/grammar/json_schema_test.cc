#include "engine/grammar/json_schema.h"

#include <regex>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/engine/grammar/grammar_rig.h"

namespace pdjob::engine {
namespace {

using Json = nlohmann::json;

std::string refusal(std::string_view schema) {
  const auto read = normalise_json_schema(schema);
  return read.has_value() ? "accepted: " + *read : read.error().message;
}

TEST(JsonSchema, WhatIsReadIsWrittenInFewerWords) {
  EXPECT_EQ(normalise_json_schema(
                R"( {"title":"A","description":"b","type":["string","null"],"maxLength":3} )")
                .value(),
            R"({"anyOf":[{"type":"string","maxLength":3},{"type":"null"}]})");
  EXPECT_EQ(normalise_json_schema("true").value(), "{}");
  EXPECT_EQ(
      normalise_json_schema(R"({"$defs":{"x/y":{"const":1}},"allOf":[{"$ref":"#/$defs/x/y"}]})")
          .value(),
      R"({"$ref":"#/$defs/d0","$defs":{"d0":{"const":1}}})");
  EXPECT_EQ(normalise_json_schema(R"({"type":"object"})").value(),
            R"({"type":"object","additionalProperties":true})");
}

TEST(JsonSchema, WhatCannotBeFollowedExactlyIsRefusedWithItsPath) {
  const auto in_a = [](const std::string& schema) {
    return refusal(R"({"type":"object","properties":{"a":)" + schema + "}}");
  };
  const std::string here = "the JSON schema at $.properties.a";
  EXPECT_EQ(in_a(R"({"type":"string","pattern":"[0-9]{3}"})"),
            here +
                ".pattern: must begin with ^ and end with $: a pattern that may match anywhere "
                "in the string is not supported");
  EXPECT_EQ(in_a(R"({"type":"string","format":"color"})"),
            here +
                ".format: must be date, time, date-time, duration, email, ipv4, ipv6, hostname, "
                "uuid or uri");
  EXPECT_EQ(in_a(R"({"type":"string","minLength":3,"format":"date"})"),
            here + ": pattern, format and a length are not supported together");
  EXPECT_EQ(in_a(R"({"type":"array","uniqueItems":true})"),
            here + ": uniqueItems is not supported");
  EXPECT_EQ(in_a(R"({"minLength":3})"), here + ": minLength is not supported without a type");
  EXPECT_EQ(in_a(R"({"type":"integer","multipleOf":3})"),
            here + ": multipleOf is not supported with this type");
  EXPECT_EQ(in_a(R"({"not":{"type":"string"}})"), here + ": not is not supported without a type");
  EXPECT_EQ(in_a(R"({"type":"string","enum":["x",1]})"),
            here + ": enum has a value that is not of its type");
  EXPECT_EQ(in_a(R"({"type":"object","required":["b"]})"),
            here + ": required names what is not in properties");
  EXPECT_EQ(in_a(R"({"allOf":[{"type":"object"},{"type":"object"}]})"),
            here + ": allOf of several schemas is not supported");
  EXPECT_EQ(in_a(R"({"$ref":"#/$defs/x","minLength":1})"),
            here + ": minLength is not supported beside $ref");
  EXPECT_EQ(in_a(R"({"$id":"http://elsewhere"})"), here + ": $id is not supported without a type");
  EXPECT_EQ(in_a("false"), here + ": must be an object or true");
}

TEST(JsonSchema, EveryLimitAndEveryMistakeIsRefused) {
  std::string many = R"({"type":"object","properties":{)";
  for (int i = 0; i < 5000; ++i) {
    many += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) + "\":{}";
  }
  const std::string name(60'000, 'a');
  for (const std::string& schema :
       {std::string(),
        std::string("{"),
        std::string("[1]"),
        std::string("\"text\""),
        std::string("{} {}"),
        std::string("false"),
        std::string(R"({"type":"nonsense"})"),
        std::string(R"({"type":[]})"),
        std::string(R"({"type":["null","null"]})"),
        std::string(R"({"$ref":"#/nowhere"})"),
        std::string(R"({"$ref":"http://127.0.0.1:1/x"})"),
        std::string(R"({"$ref":7})"),
        std::string(R"({"$defs":[]})"),
        std::string(R"({"enum":[]})"),
        std::string(R"({"anyOf":[]})"),
        std::string(R"({"anyOf":{}})"),
        std::string(R"({"type":"object","properties":[]})"),
        std::string(R"({"type":"object","required":"a"})"),
        std::string(R"({"type":"array","prefixItems":{}})"),
        std::string(R"({"type":"string","minLength":-1})"),
        std::string(R"({"type":"string","minLength":1.5})"),
        std::string(R"({"type":"string","minLength":"1"})"),
        std::string(R"({"type":"string","minLength":3,"maxLength":2})"),
        std::string(R"({"type":"string","minLength":1000000000})"),
        std::string(R"({"type":"string","pattern":7})"),
        std::string(R"({"type":"integer","minimum":1e300})"),
        std::string(R"({"type":"integer","minimum":1e999})"),
        std::string(R"({"type":"integer","minimum":0.5})"),
        std::string(R"({"type":"number","minimum":0.00000001})"),
        std::string(R"({"type":"number","minimum":"1"})"),
        std::string(30'000, '['),
        many + "}}",
        R"({"type":"object","additionalProperties":true,"properties":{")" + name + R"(":{}}})",
        R"({"const":")" + name + R"("})",
        R"({"enum":[")" + name + R"("]})"}) {
    EXPECT_EQ(refusal(schema).find("accepted"), std::string::npos) << schema.substr(0, 80);
  }
}

// Regression: these 60 bytes ended every decode worker by endless recursion.
TEST(JsonSchema, AReferenceThatOnlyLeadsBackToItselfIsRefused) {
  EXPECT_EQ(refusal(R"({"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"$ref":"#/$defs/a"}}})"),
            "the JSON schema at $.$defs.a: $ref leads back to itself");
  EXPECT_EQ(refusal(R"({"$ref":"#"})"), "the JSON schema at $: $ref leads back to itself");
  EXPECT_EQ(
      refusal(
          R"({"$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}},"type":"null"})"),
      "the JSON schema at $.$defs.a: $ref leads back to itself");
}

TEST(JsonSchema, RecursionThroughAValueIsFollowed) {
  const auto tree =
      compile(
          StructureKind::kSchema,
          R"({"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":1}},"$ref":"#/$defs/t"})")
          .value();
  EXPECT_TRUE(follows(tree, "[[[]]]"));
  EXPECT_FALSE(follows(tree, "[[],[]]"));
}

TEST(JsonSchema, OptionsOfOneOfMustExcludeEachOther) {
  const auto discriminated = compile(
      StructureKind::kSchema,
      R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"discriminator":{"propertyName":"kind"},
          "$defs":{"a":{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},
                   "b":{"type":"object","properties":{"kind":{"enum":["b","c"]}},"required":["kind"]}}})");
  EXPECT_TRUE(follows(discriminated.value(), R"({"kind":"a","x":1})"));
  EXPECT_TRUE(follows(*discriminated, R"({"kind": "c"})"));
  EXPECT_FALSE(follows(*discriminated, R"({"kind":"a"})"));
  EXPECT_NE(refusal(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})").find("use anyOf"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"oneOf":[{"type":"object"},{"type":"object"}]})").find("use anyOf"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"oneOf":[{"type":"string"},{"type":"null"}]})"),
            R"(accepted: {"anyOf":[{"type":"string"},{"type":"null"}]})");
}

// The meaning of the supported keywords in JSON Schema. It is written by hand, so that the library
// under test does not judge itself.
bool valid(const Json& schema, const Json& value, const Json& root) {
  if (schema.is_boolean()) {
    return schema.get<bool>();
  }
  if (schema.contains("$ref")) {
    return valid(root.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))), value,
                 root);
  }
  for (const char* word : {"anyOf", "oneOf"}) {
    if (schema.contains(word)) {
      size_t hits = 0;
      for (const Json& option : schema[word]) {
        hits += valid(option, value, root) ? 1 : 0;
      }
      return word == std::string("oneOf") ? hits == 1 : hits > 0;
    }
  }
  if (schema.contains("const") && value != schema["const"]) {
    return false;
  }
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return false;
  }
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    const bool some = std::any_of(types.begin(), types.end(), [&](const Json& type) {
      return (type == "string" && value.is_string()) || (type == "null" && value.is_null()) ||
             (type == "boolean" && value.is_boolean()) || (type == "number" && value.is_number()) ||
             (type == "integer" && value.is_number() &&
              value.get<double>() == std::floor(value.get<double>())) ||
             (type == "array" && value.is_array()) || (type == "object" && value.is_object());
    });
    if (!some) {
      return false;
    }
  }
  if (value.is_string()) {
    size_t length = 0;
    for (const char sign : value.get<std::string>()) {
      length += (static_cast<unsigned char>(sign) & 0xC0U) != 0x80U ? 1 : 0;
    }
    if (length < schema.value("minLength", 0U) || length > schema.value("maxLength", 1U << 30U)) {
      return false;
    }
    if (schema.contains("pattern") &&
        !std::regex_search(value.get<std::string>(),
                           std::regex(schema["pattern"].get<std::string>()))) {
      return false;
    }
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    if ((schema.contains("minimum") && number < schema["minimum"]) ||
        (schema.contains("maximum") && number > schema["maximum"]) ||
        (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"]) ||
        (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"])) {
      return false;
    }
  }
  if (value.is_array()) {
    const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    if (value.size() < schema.value("minItems", 0U) ||
        value.size() > schema.value("maxItems", 1U << 30U)) {
      return false;
    }
    for (size_t i = 0; i < value.size(); ++i) {
      if (i < prefix ? !valid(schema["prefixItems"][i], value[i], root)
                     : schema.contains("items") && !valid(schema["items"], value[i], root)) {
        return false;
      }
    }
  }
  if (value.is_object()) {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) {
        return false;
      }
    }
    for (const auto& [name, member] : value.items()) {
      const bool named = schema.contains("properties") && schema["properties"].contains(name);
      if (named ? !valid(schema["properties"][name], member, root)
                : schema.contains("additionalProperties") &&
                      !valid(schema["additionalProperties"], member, root)) {
        return false;
      }
    }
  }
  return true;
}

// Every random text that reaches its end is valid JSON and fits the schema.
TEST(JsonSchema, EveryTextOfTheGrammarIsValid) {
  const char* schemas[] = {
      "{}",
      R"({"type":"object"})",
      R"({"type":"array"})",
      R"({"type":"string","minLength":2,"maxLength":4})",
      R"({"type":"string","maxLength":0})",
      R"({"type":"string","minLength":1})",
      R"({"type":"string","pattern":"^[^a]{2}.\\w-\\d+$"})",
      R"({"type":"string","pattern":"^(ab|[c-e]?)*x$"})",
      R"({"type":"integer","minimum":-17,"maximum":203})",
      R"({"type":"integer","exclusiveMinimum":7})",
      R"({"type":"integer","exclusiveMaximum":-99})",
      R"({"type":"integer","minimum":99999,"exclusiveMaximum":100002})",
      R"({"type":"number","minimum":-1.5,"maximum":2.25})",
      R"({"type":"number","exclusiveMinimum":0})",
      R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
      R"({"type":"number","maximum":-3})",
      R"({"type":"number","minimum":999.5})",
      R"({"type":"number","minimum":0.000001,"maximum":0.00001})",
      R"({"enum":["a\"b\\\/\n",1,2.5,null,true,["x"],{"y":"é"}]})",
      R"({"const":"\u0000\u001f"})",
      R"({"type":["integer","null","string"],"maxLength":2,"minimum":5})",
      R"({"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":3})",
      R"({"type":"array","items":{"type":"null"},"minItems":0,"maxItems":0})",
      R"({"type":"array","prefixItems":[{"type":"integer"},{"const":"k"}],"items":{"type":"null"},"maxItems":4})",
      R"({"type":"array","prefixItems":[{"type":"integer"},true],"minItems":2,"items":false})",
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["b"]})",
      R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"null"}},"additionalProperties":{"type":"boolean"}})",
      R"({"type":"object","additionalProperties":{"type":"integer","minimum":5}})",
      R"({"properties":{"":{"type":"null"},"x\"y\\":{"type":"null"}},"required":[""]})",
      R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"next":{"$ref":"#"}},"required":["next"]}]})",
      R"({"oneOf":[{"type":"string","maxLength":1},{"type":"integer"}]})"};
  Random random(11);
  for (const char* schema : schemas) {
    const Json parsed = Json::parse(schema);
    const auto compiled = compile(StructureKind::kSchema, schema);
    ASSERT_TRUE(compiled.has_value()) << schema << ": " << compiled.error().message;
    int whole = 0;
    for (int i = 0; i < 120; ++i) {
      bool ended = false;
      const std::string text = random_text(*compiled, random, 120, ended);
      ASSERT_FALSE(text.starts_with("REFUSED")) << schema;
      if (!ended) {
        continue;
      }
      ++whole;
      const Json value = Json::parse(text, nullptr, false);
      if (std::regex_search(text, std::regex("[0-9][eE]\\+?[0-9]{3}"))) {
        continue;  // It is JSON, but too large for a double.
      }
      ASSERT_FALSE(value.is_discarded()) << schema << " gave " << text;
      EXPECT_TRUE(valid(parsed, value, parsed)) << schema << " gave " << text;
    }
    EXPECT_GT(whole, 10) << schema;
  }
}

TEST(JsonSchema, FormatsHaveTheirShape) {
  const struct {
    const char* format;
    const char* good;
    const char* bad;
  } cases[] = {{"date", "2026-02-28", "2026-13-01"},
               {"time", "10:20:30Z", "25:00:00Z"},
               {"date-time", "2026-02-28T10:20:30Z", "2026-02-28"},
               {"duration", "P3DT4H", "3 days"},
               {"email", "a.b@example.org", "nobody"},
               {"ipv4", "192.168.0.1", "256.1.1.1"},
               {"ipv6", "2001:db8::1", "2001::db8::1"},
               {"hostname", "a-b.example", "-a"},
               {"uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"},
               {"uri", "https://example.org/a?b#c", "no uri"}};
  Random random(3);
  for (const auto& each : cases) {
    const auto compiled = compile(StructureKind::kSchema, R"({"type":"string","format":")" +
                                                              std::string(each.format) + "\"}");
    ASSERT_TRUE(compiled.has_value()) << each.format << compiled.error().message;
    EXPECT_TRUE(follows(*compiled, "\"" + std::string(each.good) + "\"")) << each.format;
    EXPECT_FALSE(follows(*compiled, "\"" + std::string(each.bad) + "\"")) << each.format;
    for (int i = 0; i < 100; ++i) {
      bool ended = false;
      const std::string text = random_text(*compiled, random, 200, ended);
      if (ended) {
        EXPECT_TRUE(Json::parse(text, nullptr, false).is_string()) << each.format << ": " << text;
      }
    }
  }
}

}  // namespace
}  // namespace pdjob::engine
