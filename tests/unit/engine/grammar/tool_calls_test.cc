#include "engine/grammar/tool_calls.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "tests/unit/engine/grammar/grammar_rig.h"

namespace pdjob::engine {
namespace {

constexpr const char* kCity =
    R"({"type":"object","properties":{"city":{"type":"string","maxLength":9}},"required":["city"]})";
constexpr const char* kNothing = R"({"type":"object","properties":{}})";

ToolCallRules rules(bool must, bool several) {
  return {
      .must = must,
      .several = several,
      .tools = {{.place = "tools[0].function.parameters", .name = "weather", .parameters = kCity},
                {.place = "tools[1].function.parameters", .name = "time", .parameters = kNothing}}};
}

std::string call(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}
const std::string kWeather = call("weather", R"({"city": "Paris"})");
const std::string kTime = call("time", "{}");

std::shared_ptr<const CompiledGrammar> compiled(bool must, bool several) {
  return compile(StructureKind::kToolCalls, write_tool_calls(rules(must, several))).value();
}

TEST(ToolCalls, RulesAreReadAsWritten) {
  const ToolCallRules read = read_tool_calls(write_tool_calls(rules(true, false))).value();
  EXPECT_TRUE(read.must);
  EXPECT_FALSE(read.several);
  ASSERT_EQ(read.tools.size(), 2U);
  EXPECT_EQ(read.tools[1].name, "time");
  EXPECT_EQ(read.tools[1].place, "tools[1].function.parameters");
  EXPECT_EQ(read.tools[0].parameters, kCity);
  EXPECT_TRUE(read.tools[0].exact);
  EXPECT_FALSE(read.answer.has_value());
  EXPECT_FALSE(read_tool_calls("abc").has_value());
}

TEST(ToolCalls, AMustIsOneCallOfATool) {
  const auto one = compiled(/*must=*/true, /*several=*/false);
  EXPECT_TRUE(follows(one, kWeather));
  EXPECT_TRUE(follows(one, kTime));
  EXPECT_FALSE(follows(one, ""));
  EXPECT_FALSE(follows(one, "Hello"));
  EXPECT_FALSE(follows(one, kWeather + "\n" + kTime));
  EXPECT_FALSE(follows(one, call("unknown", "{}")));
  EXPECT_FALSE(follows(one, call("weather", "{}")));
  EXPECT_FALSE(follows(one, call("weather", R"({"city": "Constantinople"})")));
  EXPECT_FALSE(follows(one, call("time", R"({"zone": 1})")));
}

TEST(ToolCalls, ACallEndsTheTextIfOnlyOneIsAllowed) {
  for (const bool must : {true, false}) {
    Grammar grammar(compiled(must, /*several=*/false));
    for (const char byte : kWeather) {
      EXPECT_FALSE(grammar.finished());
      ASSERT_TRUE(grammar.accept(static_cast<unsigned char>(byte)).has_value()) << byte;
    }
    EXPECT_TRUE(grammar.finished());
  }
}

TEST(ToolCalls, SeveralMayFollowEachOtherUpToTheLimit) {
  const auto several = compiled(/*must=*/true, /*several=*/true);
  EXPECT_FALSE(follows(several, ""));
  EXPECT_TRUE(follows(several, kWeather));
  EXPECT_TRUE(follows(several, kWeather + "\n" + kTime + kWeather + "\n"));
  EXPECT_FALSE(follows(several, kWeather + " and " + kTime));
  std::string most;
  for (size_t i = 0; i < limits::kToolCallsMax; ++i) {
    most += kTime;
  }
  EXPECT_TRUE(follows(several, most));
  EXPECT_FALSE(follows(several, most + kTime));
}

TEST(ToolCalls, WithoutAMustTheTextIsFreeUntilACallOpens) {
  const std::string both = kWeather + "\n" + kTime;
  for (const bool several : {true, false}) {
    const auto may = compiled(/*must=*/false, several);
    EXPECT_TRUE(follows(may, ""));
    EXPECT_TRUE(follows(may, "1 < 2, <tool> and <tool_calls are text. {\"name\": 7}"));
    EXPECT_TRUE(follows(may, kWeather));
    EXPECT_TRUE(follows(may, "Let me look.\n" + kWeather));
    EXPECT_FALSE(follows(may, "<tool_call>"));
    EXPECT_FALSE(follows(may, "Text <tool_call> text"));
    EXPECT_FALSE(follows(may, call("weather", "{}")));
    EXPECT_EQ(follows(may, both), several);
  }
}

TEST(ToolCalls, ARefusalNamesTheTool) {
  ToolCallRules wrong = rules(true, false);
  wrong.tools[1].parameters = R"({"type":"object","properties":{"a":{"type":"text"}}})";
  const auto checked = check_structure(StructureKind::kToolCalls, write_tool_calls(wrong));
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(checked.error().message.starts_with(
      "tools[1].function.parameters: the JSON schema at $.properties.a: "))
      << checked.error().message;
}

TEST(ToolCalls, WhatAToolDoesNotHoldIsNamedUnlessItIsStrict) {
  ToolCallRules two = rules(true, false);
  for (ToolCallRules::Tool& tool : two.tools) {
    tool.parameters =
        R"({"properties":{"tags":{"type":"array","items":{"type":"null"},"uniqueItems":true}}})";
    tool.exact = false;
  }
  const auto checked = check_structure(StructureKind::kToolCalls, write_tool_calls(two)).value();
  EXPECT_EQ(checked.not_held,
            "tools[0].properties.tags: uniqueItems; tools[1].properties.tags: uniqueItems");
  const auto grammar = compile(StructureKind::kToolCalls, write_tool_calls(two)).value();
  EXPECT_TRUE(follows(grammar, call("time", R"({"tags": [null,null]})")));
  EXPECT_FALSE(follows(grammar, call("time", R"({"tags": [1]})")));
  EXPECT_FALSE(follows(grammar, call("time", "[]")));
  two.tools[1].exact = true;
  EXPECT_EQ(
      check_structure(StructureKind::kToolCalls, write_tool_calls(two)).error().message,
      "tools[1].function.parameters: the JSON schema at $.properties.tags: uniqueItems is not "
      "supported");
}

TEST(ToolCalls, AnAnswerFollowsItsSchemaIfNoCallIsMade) {
  ToolCallRules with_answer = rules(false, true);
  with_answer.answer = R"({"type":"object","properties":{"n":{"type":"null"}},"required":["n"]})";
  const auto grammar = compile(StructureKind::kToolCalls, write_tool_calls(with_answer)).value();
  EXPECT_TRUE(follows(grammar, R"({"n": null})"));
  EXPECT_TRUE(follows(grammar, kWeather + "\n" + kTime));
  EXPECT_FALSE(follows(grammar, "Hello"));
  EXPECT_FALSE(follows(grammar, R"({"n": null})" + kTime));
  EXPECT_FALSE(follows(grammar, ""));
}

TEST(ToolCalls, SchemasKeepTheirOwnDefinitions) {
  ToolCallRules two = rules(true, false);
  for (ToolCallRules::Tool& tool : two.tools) {
    tool.parameters =
        std::string(
            R"({"type":"object","properties":{"v":{"$ref":"#/$defs/t"}},"required":["v"],)") +
        R"("$defs":{"t":{"enum":[")" + tool.name + R"("]}}})";
  }
  const auto grammar = compile(StructureKind::kToolCalls, write_tool_calls(two)).value();
  EXPECT_TRUE(follows(grammar, call("weather", R"({"v": "weather"})")));
  EXPECT_TRUE(follows(grammar, call("time", R"({"v": "time"})")));
  EXPECT_FALSE(follows(grammar, call("time", R"({"v": "weather"})")));
}

TEST(ToolCalls, TheMostToolsCompile) {
  ToolCallRules many{.must = false, .several = true};
  for (size_t i = 0; i < limits::kToolsMax; ++i) {
    const std::string name =
        std::string(limits::kToolNameBytesMax - 3, 'n') + std::to_string(100 + i);
    many.tools.push_back({.place = "", .name = name, .parameters = kCity});
  }
  const auto grammar = compile(StructureKind::kToolCalls, write_tool_calls(many)).value();
  EXPECT_TRUE(follows(grammar, call(many.tools.back().name, R"({"city":"Rome"})")));
}

}  // namespace
}  // namespace pdjob::engine
