#include "engine/schema/json_schema.h"

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
  return read.has_value() ? "accepted: " + read->text : read.error().message;
}

ReadSchema open_schema(std::string_view schema) {
  return normalise_json_schema(schema, {.exact = false}).value();
}

TEST(JsonSchema, WhatIsReadIsWrittenInFewerWords) {
  const auto read = [](std::string_view schema) {
    return normalise_json_schema(schema).value().text;
  };
  EXPECT_EQ(read(R"( {"title":"A","description":"b","type":["string","null"],"maxLength":3} )"),
            R"({"anyOf":[{"type":"string","maxLength":3},{"type":"null"}]})");
  EXPECT_EQ(read("true"), "{}");
  EXPECT_EQ(read(R"({"$defs":{"x/y":{"const":1},"unused":{"type":"nonsense"}},
                     "anyOf":[{"$ref":"#/$defs/x~1y"}]})"),
            R"({"$ref":"#/$defs/d0","$defs":{"d0":{"const":1}}})");
  EXPECT_EQ(read(R"({"type":"object"})"), R"({"type":"object","additionalProperties":true})");
}

TEST(JsonSchema, WhatCannotBeHeldIsRefusedWithItsPathOrNamed) {
  const struct {
    const char* schema;
    const char* refusal;
    const char* note;
  } cases[] = {
      {R"({"type":"array","uniqueItems":true})", ": uniqueItems is not supported", ": uniqueItems"},
      {R"({"type":"number","multipleOf":0.01})", ": multipleOf of fractions is not supported",
       ": multipleOf"},
      {R"({"not":{"type":"string"}})", ": not is not supported", ": not"},
      {R"({"type":"string","enum":[1,2]})", ": no value of enum is of its type", ": type"},
      {R"({"type":"string","pattern":"^(?=a)b$"})",
       ".pattern: must not look ahead or behind, or change how the rest is read", ": pattern"},
      {R"({"$ref":"http://elsewhere/x.json"})", ": $ref must stay inside the schema", ": $ref"},
      {R"({"$ref":"#name"})", ": $ref must be \"#\", or \"#/\" and the way to a schema in it",
       ": $ref"},
      {R"({"$ref":"#/$defs/lost"})",
       ": $ref must be \"#\", or \"#/\" and the way to a schema in it", ": $ref"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
       ": the options of oneOf must differ in type, or in a required property with const or enum; "
       "use anyOf where both may hold",
       ": oneOf"},
      {R"({"type":"object","additionalProperties":{"type":"null"},"minProperties":2})",
       ": minProperties is not supported with these properties", ": minProperties"}};
  for (const auto& each : cases) {
    const std::string whole =
        R"({"type":"object","properties":{"a":)" + std::string(each.schema) + "}}";
    EXPECT_EQ(refusal(whole), "the JSON schema at $.properties.a" + std::string(each.refusal));
    EXPECT_EQ(open_schema(whole).not_held,
              std::vector<std::string>{"properties.a" + std::string(each.note)});
  }
}

TEST(JsonSchema, WhatAsksForNothingIsLeftOut) {
  for (const char* schema :
       {R"({"type":"string","format":"color"})", R"({"type":"integer","format":"int64"})",
        R"({"type":"string","nullable":false,"x-order":1,"markdownDescription":"a","strict":true})",
        R"({"type":"object","minProperties":0,"additionalItems":false,"propertyOrdering":["a"]})",
        R"({"type":"string","enum":null,"format":null,"items":null,"properties":null})",
        R"({"type":"object","propertyNames":{"type":"string"},"required":null})",
        R"({"type":"string","pattern":".*","minLength":0})",
        R"({"type":"object","$defs":{"unused":{"oneOf":[{"type":"string"},{"maxLength":3}]}}})"}) {
    const ReadSchema read = normalise_json_schema(schema).value();
    EXPECT_TRUE(read.not_held.empty()) << schema;
    EXPECT_LT(read.text.size(), 50U) << read.text;
  }
}

TEST(JsonSchema, SchemasThatApplyTogetherBecomeOne) {
  const auto grammar = [](const char* schema) {
    return compile(StructureKind::kSchema, schema).value();
  };
  const auto both = grammar(
      R"({"allOf":[{"$ref":"#/$defs/A"},{"type":"object","properties":{"b":{"type":"null"}},"required":["b"]}],
          "$defs":{"A":{"type":"object","properties":{"a":{"type":"integer","minimum":3,"maximum":5}},"required":["a"]}}})");
  EXPECT_TRUE(follows(both, R"({"a": 4, "b": null})"));
  EXPECT_FALSE(follows(both, R"({"a": 4})"));
  EXPECT_FALSE(follows(both, R"({"a": 9, "b": null})"));
  const auto either = grammar(
      R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})");
  EXPECT_TRUE(follows(either, R"({"a": null})"));
  EXPECT_TRUE(follows(either, R"({"b": null})"));
  EXPECT_FALSE(follows(either, "{}"));
  const auto beside = grammar(
      R"({"type":"object","properties":{"a":{"$ref":"#/properties/b","maxLength":2},"b":{"type":"string","minLength":1}},"required":["a"]})");
  EXPECT_TRUE(follows(beside, R"({"a": "xy"})"));
  EXPECT_FALSE(follows(beside, R"({"a": ""})"));
  EXPECT_FALSE(follows(beside, R"({"a": "xyz"})"));
  const auto ends = grammar(
      R"({"type":"string","maxLength":12,"allOf":[{"pattern":"^a.*"},{"pattern":".*\\.md$"}]})");
  EXPECT_TRUE(follows(ends, R"("ab.md")"));
  EXPECT_FALSE(follows(ends, R"("b.md")"));
  EXPECT_FALSE(follows(ends, R"("a.mdx")"));
  EXPECT_EQ(refusal(R"({"allOf":[{"type":"string"},{"type":"null"}]})"),
            "the JSON schema at $: no value fits");
}

TEST(JsonSchema, GeneratorsOfSchemasAreUnderstood) {
  const struct {
    const char* schema;
    const char* good;
    const char* bad;
  } cases[] = {
      // Zod 4.
      {R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
       "9007199254740991", "9007199254740992"},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1000000000000})", "999999999999",
       "1000000000000"},
      {R"({"type":"object","propertyNames":{"type":"string","enum":["a","b"]},"additionalProperties":{"type":"null"},"required":["a","b"]})",
       R"({"a": null, "b": null})", R"({"a": null})"},
      {R"({"type":"string","format":"duration","pattern":"^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$"})",
       "\"PT5M\"", "\"P\""},
      {R"({"type":"array","items":[{"type":"null"}],"additionalItems":false,"minItems":1,"maxItems":1})",
       "[null]", "[null,null]"},
      {R"({"not":{}, "$comment":"never"})", nullptr, nullptr},
      // Pydantic.
      {R"({"type":"string","format":"uri","minLength":1,"maxLength":20})", "\"http://a.b\"",
       "\"http://aaaaaaaaaaaaaaaaaaaa.b\""},
      {R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":4})", "\"abc\"",
       "\"abcde\""},
      {R"({"type":"string","pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"})", "\"12.5\"", "\"-\""},
      {R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1})",
       R"({"k": 1})", "{}"},
      {R"({"type":"object","patternProperties":{"^k_":{"type":"null"}}})", R"({"k_1": null})",
       R"({"j": null})"},
      // Schemars.
      {R"({"type":"integer","format":"uint32","minimum":0})", "7", "-7"},
      {R"({"oneOf":[{"type":"string","enum":["A"]},{"type":"object","properties":{"B":{"type":"null"}},"required":["B"],"additionalProperties":false},
           {"type":"object","properties":{"C":{"type":"null"}},"required":["C"],"additionalProperties":false}]})",
       R"({"C": null})", R"({"B": null, "C": null})"},
      // OpenAPI 3.0.
      {R"({"type":"integer","minimum":0,"exclusiveMinimum":true,"nullable":true})", "null", "0"}};
  for (const auto& each : cases) {
    if (each.good == nullptr) {
      EXPECT_EQ(refusal(each.schema), "the JSON schema at $: no value fits");
      continue;
    }
    const auto compiled = compile(StructureKind::kSchema, each.schema);
    ASSERT_TRUE(compiled.has_value()) << each.schema << compiled.error().message;
    EXPECT_TRUE(follows(*compiled, each.good)) << each.schema;
    EXPECT_FALSE(follows(*compiled, each.bad)) << each.schema;
  }
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
        std::string(R"({"type":"array","items":{"$ref":"#/properties"}})"),
        std::string(R"({"$ref":7})"),
        std::string(R"({"enum":[]})"),
        std::string(R"({"anyOf":[]})"),
        std::string(R"({"anyOf":{}})"),
        std::string(R"({"type":"object","properties":["a"]})"),
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
  EXPECT_EQ(
      refusal(R"({"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"$ref":"#/$defs/a"}}})"),
      "the JSON schema at $: $ref leads back to itself, or allOf and $ref put too many schemas "
      "together");
  EXPECT_EQ(refusal(R"({"$ref":"#"})"), "the JSON schema at $: $ref leads back to itself");
  EXPECT_EQ(
      refusal(
          R"({"$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}},"anyOf":[{"$ref":"#/$defs/a"}]})"),
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
