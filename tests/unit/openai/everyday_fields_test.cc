// Fields as everyday clients send them: sentinels, older names, histories.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "openai/openai.h"
#include "tests/unit/openai/api_requests.h"

namespace pdjob::openai {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kTool = R"({"type":"function","function":{"name":"a"}})";

std::string tools(std::string_view list, std::string_view more = "") {
  return R"("tools":[)" + std::string(list) + "]" + std::string(more);
}
std::string tool(std::string_view function) {
  return R"({"type":"function","function":)" + std::string(function) + "}";
}
// Returns the wrong field of a chat.
std::string refused(const std::string& fields) {
  const std::string refusal = chat_refusal(fields);
  return refusal.substr(0, refusal.find(" | "));
}

TEST(ParseApiRequest, TheSeedMinusOneIsNone) {
  EXPECT_FALSE(completion(R"("seed":-1)").seeded);
  EXPECT_FALSE(chat(R"("seed":-1.0)").seeded);
}

TEST(ParseApiRequest, ALimitOfMinusOneTokensIsAsManyAsFit) {
  for (const char* field : {R"("max_tokens":-1)", R"("max_completion_tokens":-1)",
                            R"("max_tokens":5,"max_completion_tokens":-1)"}) {
    EXPECT_TRUE(completion(field).fills_context) << field;
    EXPECT_TRUE(chat(field).fills_context) << field;
  }
  const ApiRequest limited = chat(R"("max_tokens":-1,"max_completion_tokens":5)");
  EXPECT_FALSE(limited.fills_context);
  EXPECT_EQ(limited.stop.max_tokens, 5);
  EXPECT_NE(completion_refusal(R"("max_tokens":-2)"), "accepted");
}

TEST(ParseApiRequest, AnEmptyStopStringStopsNothing) {
  EXPECT_TRUE(completion(R"("stop":"")").stop.strings.empty());
  EXPECT_EQ(completion(R"("stop":["","a"])").stop.strings, std::vector<std::string>{"a"});
  std::string twenty;
  for (int i = 0; i < 20; ++i) {
    twenty += (i > 0 ? ",\"s" : "\"s") + std::to_string(i) + "\"";
  }
  EXPECT_EQ(completion("\"stop\":[" + twenty + "]").stop.strings.size(), 20U);
}

TEST(ParseApiRequest, ChoicesAreBoundedForEachPromptAndForAll) {
  EXPECT_EQ(completion(R"("n":128)").choices, 128U);
  EXPECT_EQ(completion_refusal(R"("n":129)"), "n | n: must be an integer from 1 to 128, got 129");
  std::string prompts = "\"a\"";
  for (size_t i = 1; i < limits::kPromptsMax; ++i) {
    prompts += ",\"a\"";
  }
  const auto body = [&](const char* n) {
    return R"({"prompt":[)" + prompts + R"(],"n":)" + n + "}";
  };
  EXPECT_EQ(parsed(ApiKind::kCompletion, body("2")).prompts.size(), limits::kPromptsMax);
  EXPECT_EQ(refusal_of(ApiKind::kCompletion, body("3")),
            "n | n: times 2048 prompts must be at most 4096 choices, got 6144");
}

TEST(ParseApiRequest, ReadsTheTokensThatAreAllowed) {
  EXPECT_EQ(chat(R"("allowed_token_ids":[5,7])").sampling.allowed_tokens,
            (std::vector<Token>{5, 7}));
  EXPECT_EQ(completion_refusal(R"("allowed_token_ids":[5,-7])"),
            "allowed_token_ids[1] | allowed_token_ids[1]: must be a token id, got -7");
}

TEST(ParseMessages, HistoriesOfOtherFormsAreRead) {
  const ApiRequest request = parsed(ApiKind::kChat, R"({"messages":[
      {"role":"user","content":["a",{"type":"input_text","text":"b"}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},
        {"type":"output_text","text":"c"},{"type":"refusal","refusal":"d"}],"refusal":null},
      {"role":"assistant","reasoning_content":"so","content":[{"type":"thinking",
        "thinking":[{"type":"text","text":"x"}]}]},
      {"role":"assistant","content":null,"refusal":"no"},
      {"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}},
      {"role":"function","name":"f","content":"42"},
      {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"g","arguments":{"a":1}}}]},
      {"role":"tool","tool_call_id":"1","content":null},
      {"role":"assistant","content":[{"type":"reasoning","text":"y"},{"type":"reasoning",
        "reasoning":"z"},{"type":"redacted_thinking","data":"?"},{"type":"text","text":"e"}],
        "tool_calls":[{"id":"2","type":"","function":{"name":"g","arguments":"{}"}}]}]})");
  const auto& messages = request.messages;
  EXPECT_EQ(messages[0].content, "a\nb");
  EXPECT_EQ(messages[1].content, "c\nd");
  EXPECT_EQ(messages[1].reasoning, "hm");
  EXPECT_EQ(messages[2].reasoning, "xso");
  EXPECT_EQ(messages[2].content, "");
  EXPECT_EQ(messages[3].content, "no");
  ASSERT_EQ(messages[4].tool_calls.size(), 1U);
  EXPECT_EQ(messages[4].tool_calls[0].arguments, "{}");
  EXPECT_EQ(messages[5].role, "tool");
  EXPECT_EQ(messages[5].tool_call_id, messages[4].tool_calls[0].id);
  EXPECT_EQ(messages[5].tool_name, "f");
  EXPECT_EQ(messages[6].tool_calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(messages[7].tool_name, "g");
  EXPECT_EQ(messages[7].content, "");
  EXPECT_EQ(messages[8].reasoning, "yz");
  EXPECT_EQ(messages[8].content, "e");
  EXPECT_EQ(messages[8].tool_calls.size(), 1U);
  EXPECT_NE(refusal_of(ApiKind::kChat, R"({"messages":[{"role":"user","content":null}]})"),
            "accepted");
  EXPECT_NE(refusal_of(ApiKind::kChat,
                       R"({"messages":[{"role":"user","content":[{"type":"thinking"}]}]})"),
            "accepted");
}

TEST(ParseTemplate, ReadsHowItIsFilled) {
  const ApiTemplate plain = chat("").chat_template;
  EXPECT_TRUE(plain.opens_turn && !plain.continues_last && plain.values.empty());
  EXPECT_FALSE(chat(R"("add_generation_prompt":false)").chat_template.opens_turn);
  const ApiTemplate continued = chat(R"("continue_final_message":true)").chat_template;
  EXPECT_TRUE(continued.continues_last && !continued.opens_turn);
  const ApiTemplate filled =
      chat(R"("chat_template_kwargs":{"enable_thinking":false,"a":[1, "b"]})").chat_template;
  const Values expected = {{"enable_thinking", "false"}, {"a", R"([1,"b"])"}};
  EXPECT_EQ(filled.values, expected);
  EXPECT_EQ(chat_refusal(R"("continue_final_message":true,"add_generation_prompt":true)"),
            "continue_final_message | continue_final_message: must not be true together with "
            "add_generation_prompt");
  EXPECT_EQ(chat_refusal(R"("chat_template_kwargs":{"bos_token":"x"})"),
            "chat_template_kwargs.bos_token | chat_template_kwargs.bos_token: must not be given "
            "here");
  EXPECT_NE(chat_refusal(R"("chat_template_kwargs":[1])"), "accepted");
  EXPECT_NE(completion_refusal(R"("chat_template_kwargs":{"a":1})"), "accepted");
}

TEST(ParseTools, AnEmptyListOfParametersIsPhpsEmptyObject) {
  const ApiRequest request = chat(tools(tool(R"({"name":"a","parameters":[]})")));
  EXPECT_EQ(request.tools.at(0).parameters, R"({"type":"object","properties":{}})");
  EXPECT_EQ(refused(tools(tool(R"({"name":"a","parameters":["b"]})"))),
            "tools[0].function.parameters");
}

TEST(ParseTemplate, ThinkingHasMoreNamesThanOne) {
  const auto values = [](const char* fields) { return chat(fields).chat_template.values; };
  const Values off = {{"enable_thinking", "false"}};
  EXPECT_EQ(values(R"("enable_thinking":false)"), off);
  EXPECT_EQ(values(R"("thinking":{"type":"disabled"})"), off);
  EXPECT_EQ(values(R"("thinking":{"type":"enabled"})"), (Values{{"enable_thinking", "true"}}));
  EXPECT_EQ(values(R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})"),
            off);
  EXPECT_EQ(values(R"("enable_thinking":false,"reasoning_effort":"low")"),
            (Values{{"enable_thinking", "false"}, {"reasoning_effort", "\"low\""}}));
  EXPECT_TRUE(values(R"("enable_thinking":null,"thinking":null)").empty());
  EXPECT_EQ(refused(R"("thinking":{"type":"enabled","budget_tokens":1024})"),
            "thinking.budget_tokens");
  EXPECT_EQ(refused(R"("thinking":{"type":"adaptive"})"), "thinking.type");
  EXPECT_NE(completion_refusal(R"("enable_thinking":true)"), "accepted");
}

TEST(ParseTemplate, ReasoningEffortIsTheTemplates) {
  const auto values = [](const char* fields) { return chat(fields).chat_template.values; };
  EXPECT_EQ(values(R"("reasoning_effort":"low")"),
            (Values{{"enable_thinking", "true"}, {"reasoning_effort", "\"low\""}}));
  EXPECT_EQ(values(R"("reasoning_effort":"none","chat_template_kwargs":{"a":1})"),
            (Values{{"a", "1"}, {"enable_thinking", "false"}, {"reasoning_effort", "\"none\""}}));
  EXPECT_EQ(values(R"("reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false})"),
            (Values{{"enable_thinking", "false"}, {"reasoning_effort", "\"high\""}}));
  EXPECT_TRUE(values(R"("reasoning_effort":"")").empty());
  EXPECT_EQ(refused(R"("reasoning_effort":"furious")"), "reasoning_effort");
  const auto responses =
      parsed(ApiKind::kResponses, R"({"input":"a","reasoning":{"effort":"low"}})");
  EXPECT_EQ(responses.chat_template.values, values(R"("reasoning_effort":"low")"));
  EXPECT_NE(responses.response_settings.find(R"("reasoning":{"effort":"low")"), std::string::npos);
}

TEST(ParseApiRequest, NamesOfOtherServersMeanTheSame) {
  EXPECT_EQ(completion(R"("n_predict":7,"max_tokens":9)").stop.max_tokens, 7);
  EXPECT_TRUE(completion(R"("n_predict":-1,"max_tokens":9)").fills_context);
  EXPECT_EQ(chat(R"("n_predict":7)").stop.max_tokens, 7);
  EXPECT_EQ(completion(R"("n_predict":0,"echo":true)").stop.max_tokens, 0);
  EXPECT_EQ(refused(R"("n_predict":0)"), "n_predict");
  EXPECT_TRUE(
      chat(R"("no_stop_trim":true,"include_stop_str_in_output":false)").stop.include_stop_string);
  EXPECT_EQ(chat(R"("extra_key":"a")").cache_salt, "a");
  EXPECT_EQ(chat(R"("extra_key":"a","cache_salt":"b")").cache_salt, "b");
  EXPECT_EQ(parsed(ApiKind::kEmbedding, R"({"input":"a","cache_salt":"b"})").cache_salt, "b");
}

TEST(ParseApiRequest, TheWindowOfPenaltiesMattersBesidePenaltiesOnly) {
  chat(R"("repeat_last_n":256)");
  chat(R"("repeat_last_n":64,"presence_penalty":1)");
  EXPECT_EQ(refused(R"("repeat_last_n":256,"frequency_penalty":1)"), "repeat_last_n");
}

TEST(ParseApiRequest, NeutralValuesAreComparedAsNumbers) {
  chat(R"("repeat_penalty":1.0,"typical_p":1,"min_keep":1.0,"reasoning_format":"auto")");
  EXPECT_EQ(chat_refusal(R"("repeat_penalty":1.1)"),
            "repeat_penalty | repeat_penalty: is not supported: use repetition_penalty, over all "
            "tokens");
  EXPECT_EQ(refused(R"("reasoning_format":"deepseek")"), "reasoning_format");
  EXPECT_EQ(refused(R"("include_reasoning":false)"), "include_reasoning");
}

TEST(ParseApiRequest, AnEmptyGrammarIsNone) {
  for (const char* name : {"grammar", "ebnf", "regex", "json_schema"}) {
    EXPECT_FALSE(chat("\"" + std::string(name) + "\":\"\"").sampling.structured()) << name;
  }
}

TEST(ParseTools, AllowedToolsAreSomeOfThem) {
  const std::string three =
      std::string(kTool) + "," + tool(R"({"name":"b"})") + "," + tool(R"({"name":"c"})");
  const auto choice = [&](const std::string& mode, const std::string& list) {
    return tools(three, R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")" +
                            mode + R"(","tools":[)" + list + "]}}");
  };
  const std::string two = tool(R"({"name":"b"})") + "," + tool(R"({"name":"c"})");
  const ApiRequest free = chat(choice("auto", two));
  EXPECT_EQ(free.tools.size(), 3U);
  EXPECT_EQ(free.callable_tools, (std::vector<size_t>{1, 2}));
  EXPECT_FALSE(free.must_call_tool);
  EXPECT_TRUE(chat(choice("required", two)).must_call_tool);
  EXPECT_EQ(refused(choice("none", two)), "tool_choice.allowed_tools.mode");
  EXPECT_EQ(refused(choice("auto", "")), "tool_choice.allowed_tools.tools");
  EXPECT_EQ(refused(choice("auto", tool(R"({"name":"x"})"))),
            "tool_choice.allowed_tools.tools[0].function.name");
}

TEST(ParseTools, FunctionsAreToolsOfWhichOneIsCalled) {
  const std::string functions = R"("functions":[{"name":"a","parameters":{}},{"name":"b"}])";
  const ApiRequest request = chat(functions);
  ASSERT_EQ(request.tools.size(), 2U);
  EXPECT_EQ(request.tools[1].name, "b");
  EXPECT_TRUE(request.legacy_functions);
  EXPECT_FALSE(request.parallel_tool_calls || request.must_call_tool);
  EXPECT_TRUE(chat(functions + R"(,"function_call":"none")").tools.empty());
  EXPECT_FALSE(chat(functions + R"(,"function_call":"auto")").must_call_tool);
  const ApiRequest named = chat(functions + R"(,"function_call":{"name":"b"})");
  EXPECT_TRUE(named.must_call_tool);
  EXPECT_EQ(named.callable_tools, std::vector<size_t>{1});
  EXPECT_EQ(refused(functions + R"(,"function_call":{"name":"x"})"), "function_call.name");
  EXPECT_EQ(refused(R"("function_call":{"name":"x"})"), "function_call");
  EXPECT_EQ(refused(R"("functions":[{"name":"a b"}])"), "functions[0].name");
  EXPECT_EQ(refused(tools(kTool) + "," + functions), "functions");
}

}  // namespace
}  // namespace pdjob::openai
