#include "worker/api/tool_replies.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/grammar/tool_calls.h"

namespace pdjob::worker {
namespace {

openai::ApiRequest request_with_tools() {
  return {.kind = openai::ApiKind::kChat,
          .tools = {{.name = "a", .description = "", .parameters = "{1}"},
                    {.name = "b", .description = "", .parameters = "{2}"}}};
}

TEST(ToolStructure, SaysWhichCallsTheRequestAllows) {
  openai::ApiRequest request = request_with_tools();
  auto rules = engine::read_tool_calls(take_structure(request).text).value();
  EXPECT_FALSE(rules.must);
  EXPECT_TRUE(rules.several);
  ASSERT_EQ(rules.tools.size(), 2U);
  EXPECT_EQ(rules.tools[1].place, "tools[1].function.parameters");
  EXPECT_EQ(rules.tools[1].parameters, "{2}");

  request.kind = openai::ApiKind::kResponses;
  rules = engine::read_tool_calls(take_structure(request).text).value();
  EXPECT_EQ(rules.tools[1].place, "tools[1].parameters");

  request.parallel_tool_calls = false;
  request.must_call_tool = true;
  rules = engine::read_tool_calls(take_structure(request).text).value();
  EXPECT_TRUE(rules.must);
  EXPECT_FALSE(rules.several);
}

TEST(ToolStructure, ANamedToolIsTheOnlyOneAndCalledOnce) {
  openai::ApiRequest request = request_with_tools();
  request.must_call_tool = true;
  request.callable_tools = {1};
  request.parallel_tool_calls = false;
  const auto rules = engine::read_tool_calls(take_structure(request).text).value();
  EXPECT_FALSE(rules.several);
  ASSERT_EQ(rules.tools.size(), 1U);
  EXPECT_EQ(rules.tools[0].name, "b");
  EXPECT_EQ(rules.tools[0].place, "tools[1].function.parameters");
}

TEST(ToolStructure, HasTheSchemaOfAnAnswerAndWhatIsStrict) {
  openai::ApiRequest request = request_with_tools();
  request.tools[1].strict = true;
  request.sampling.json_schema = "{3}";
  request.sampling.schema_exact = false;
  const auto rules = engine::read_tool_calls(take_structure(request).text).value();
  EXPECT_EQ(rules.answer, "{3}");
  EXPECT_FALSE(rules.answer_exact);
  EXPECT_FALSE(rules.tools[0].exact);
  EXPECT_TRUE(rules.tools[1].exact);
  EXPECT_FALSE(request.sampling.structured());
}

TEST(ToolStructure, WithoutToolsItIsThatOfTheSampling) {
  openai::ApiRequest request{.kind = openai::ApiKind::kChat};
  request.sampling.regex = "a+";
  const Structure structure = take_structure(request);
  EXPECT_EQ(structure.kind, engine::StructureKind::kRegex);
  EXPECT_EQ(structure.text, "a+");
  request.sampling.json_schema = "{}";
  EXPECT_EQ(take_structure(request).kind, engine::StructureKind::kSchema);
  request.sampling.json_schema = "{}";
  request.sampling.schema_exact = false;
  EXPECT_EQ(take_structure(request).kind, engine::StructureKind::kOpenSchema);
}

constexpr std::string_view kTwoCalls =
    "Wait.\n<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": 1}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"b\", \"arguments\": {}}\n</tool_call>";

TEST(ChoiceCalls, CollectsTheWholeReply) {
  ChoiceCalls calls(call_seed("r", 5, {1, 2}), 0);
  std::string content;
  std::vector<openai::ToolCallPart> parts;
  for (const char byte : kTwoCalls) {
    calls.take({&byte, 1}, false, content, parts);
  }
  calls.take("", true, content, parts);
  EXPECT_EQ(content, "Wait.");
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "a");
  EXPECT_EQ(parts[0].arguments, "{\"x\": 1}");
  EXPECT_EQ(parts[1].index, 1U);
  EXPECT_EQ(parts[1].arguments, "{}");
  EXPECT_TRUE(calls.ends_in_calls());
}

TEST(ChoiceCalls, AStreamHasTheIdAndNameOnce) {
  ChoiceCalls calls(call_seed("r", 5, {1, 2}), 0);
  std::string content;
  std::string names;
  std::string arguments;
  int ids = 0;
  for (const char byte : kTwoCalls) {
    std::vector<openai::ToolCallPart> parts;
    calls.take({&byte, 1}, false, content, parts);
    for (const openai::ToolCallPart& part : parts) {
      ids += part.id.empty() ? 0 : 1;
      EXPECT_EQ(part.id.empty(), part.name.empty());
      names += part.name;
      arguments += part.arguments;
    }
  }
  EXPECT_EQ(ids, 2);
  EXPECT_EQ(names, "ab");
  EXPECT_EQ(arguments, "{\"x\": 1}{}");
}

TEST(ChoiceCalls, IdsDifferByRequestChoiceAndCallAndAreRepeatable) {
  const auto ids = [](const std::string& seed, uint32_t choice) {
    ChoiceCalls calls(seed, choice);
    std::string content;
    std::vector<openai::ToolCallPart> parts;
    calls.take(kTwoCalls, true, content, parts);
    return std::vector<std::string>{parts[0].id, parts[1].id};
  };
  const auto one = ids(call_seed("r", 5, {1, 2}), 0);
  EXPECT_EQ(one[0].size(), 29U);
  EXPECT_TRUE(one[0].starts_with("call_"));
  EXPECT_NE(one[0], one[1]);
  EXPECT_EQ(one, ids(call_seed("r", 5, {1, 2}), 0));
  EXPECT_NE(one[0], ids(call_seed("r", 5, {1, 2}), 1)[0]);
  EXPECT_NE(one[0], ids(call_seed("r", 5, {1, 3}), 0)[0]);
  EXPECT_NE(one[0], ids(call_seed("r", 6, {1, 2}), 0)[0]);
  EXPECT_NE(one[0], ids(call_seed("s", 5, {1, 2}), 0)[0]);
}

}  // namespace
}  // namespace pdjob::worker
