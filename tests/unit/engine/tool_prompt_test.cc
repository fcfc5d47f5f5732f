#include "engine/tool_prompt.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

const std::vector<ChatTool> kTools = {
    {.name = "look", .description = "Looks \"up\".", .parameters = R"({"type":"object"})"}};
constexpr const char* kDescribed =
    R"({"type":"function","function":{"name":"look","description":"Looks \"up\".","parameters":{"type":"object"}}})";

TEST(ToolPrompt, WithoutToolsNothingChanges) {
  const std::vector<ChatMessage> messages = {{.role = "system", .content = "Be brief."},
                                             {.role = "user", .content = "Hi"}};
  const auto out = tools_as_text(messages, {});
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].content, "Be brief.");
  EXPECT_EQ(out[1].content, "Hi");
}

TEST(ToolPrompt, TheSystemMessageDescribesTheTools) {
  const std::vector<ChatMessage> messages = {{.role = "user", .content = "Hi"}};
  const auto made = tools_as_text(messages, kTools);
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0].role, "system");
  EXPECT_TRUE(made[0].content.starts_with("# Tools\n"));
  EXPECT_NE(made[0].content.find(std::string("<tools>\n") + kDescribed + "\n</tools>"),
            std::string::npos)
      << made[0].content;

  const std::vector<ChatMessage> own = {{.role = "developer", .content = "Be brief."},
                                        {.role = "user", .content = "Hi"}};
  const auto kept = tools_as_text(own, kTools);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].role, "developer");
  EXPECT_TRUE(kept[0].content.starts_with("Be brief.\n\n# Tools\n"));
}

TEST(ToolPrompt, CallsAndResultsAreWrittenInTheirForm) {
  const std::vector<ChatMessage> messages = {
      {.role = "assistant",
       .content = "I look.",
       .tool_calls = {{.id = "1", .name = "look", .arguments = R"({"a":1})"},
                      {.id = "2", .name = "look", .arguments = "{}"}}},
      {.role = "tool", .content = "one", .tool_call_id = "1"},
      {.role = "tool", .content = "two", .tool_call_id = "2"},
      {.role = "user", .content = "And?"}};
  const auto out = tools_as_text(messages, {});
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[0].role, "assistant");
  EXPECT_EQ(out[0].content,
            "I look.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\":1}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(out[1].role, "user");
  EXPECT_EQ(out[1].content,
            "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>");
  EXPECT_EQ(out[2].content, "And?");
}

}  // namespace
}  // namespace pdjob::engine
