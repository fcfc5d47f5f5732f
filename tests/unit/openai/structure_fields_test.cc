#include "openai/structure_fields.h"

#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

Result<ApiRequest, ApiError> parse_chat(const std::string& fields) {
  return parse_api_request(ApiKind::kChat,
                           R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}");
}

ApiRequest chat(const std::string& fields) {
  auto result = parse_chat(fields);
  if (!result) {
    ADD_FAILURE() << result.error().message << " for " << fields;
    return {};
  }
  return *std::move(result);
}

std::string chat_refusal(const std::string& fields) {
  const auto result = parse_chat(fields);
  return result ? "accepted" : result.error().param + " | " + result.error().message;
}

TEST(ParseStructure, TakesOpenAisAndVllmsForms) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  const auto of = [](const std::string& fields) { return chat(fields).sampling; };
  EXPECT_EQ(of(R"("response_format":{"type":"text"})"), SamplingParams{});
  EXPECT_EQ(of(R"("response_format":{"type":"json_object"})").json_schema, R"({"type":"object"})");
  EXPECT_EQ(
      of(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema": )" +
         schema + "}}")
          .json_schema,
      schema);
  EXPECT_EQ(of("\"guided_json\":" + schema).json_schema, schema);
  EXPECT_EQ(of(R"("guided_json":"{}")").json_schema, "{}");
  EXPECT_EQ(of(R"("structured_outputs":{"json":)" + schema + "}").json_schema, schema);
  EXPECT_EQ(of(R"("structured_outputs":{"json_object":true})").json_schema, R"({"type":"object"})");
  EXPECT_EQ(of(R"("structured_outputs":{"grammar":"root ::= \"a\""})").grammar, "root ::= \"a\"");
  for (const char* name : {"guided_grammar", "grammar", "ebnf"}) {
    EXPECT_EQ(of("\"" + std::string(name) + R"(":"root ::= \"a\"")").grammar, "root ::= \"a\"");
  }
}

TEST(ParseStructure, TakesTheFormsOfOtherServers) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  const auto of = [](const std::string& fields) { return chat(fields).sampling; };
  for (
      const std::string& fields :
      {R"("response_format":{"type":"json_object","schema":)" + schema + "}",
       R"("response_format":{"type":"json_schema","schema":)" + schema + "}",
       R"("json_schema":)" + schema,
       std::string(
           R"("json_schema":"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}")")}) {
    EXPECT_EQ(of(fields).json_schema, schema) << fields;
    EXPECT_TRUE(of(fields).schema_exact) << fields;
  }
  for (const char* fields :
       {R"("regex":"a+")", R"("guided_regex":"a+")", R"("structured_outputs":{"regex":"a+"})"}) {
    EXPECT_EQ(of(fields).regex, "a+") << fields;
  }
  for (const char* fields :
       {R"("guided_choice":["a","b\"\n"])", R"("structured_outputs":{"choice":["a","b\"\n"]})"}) {
    EXPECT_EQ(of(fields).grammar, R"(root ::= "a" | "b\"\n")") << fields;
  }
}

TEST(ParseStructure, OnlyStrictAsksForTheWholeSchema) {
  const auto exact = [](const std::string& strict) {
    return chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"n",)" + strict +
                R"("schema":{}}})")
        .sampling.schema_exact;
  };
  EXPECT_TRUE(exact(R"("strict":true,)"));
  EXPECT_FALSE(exact(R"("strict":false,)"));
  EXPECT_FALSE(exact(R"("strict":null,)"));
  EXPECT_FALSE(exact(""));
}

TEST(ParseStructure, RefusesTwoAtOnceAndWhatIsUnknown) {
  EXPECT_EQ(chat_refusal(R"("guided_json":{},"guided_grammar":"x")"),
            "guided_grammar | guided_grammar: must not be given: another field structures the "
            "output already");
  EXPECT_EQ(chat_refusal(R"("structured_outputs":{"structural_tag":"a"})"),
            "structured_outputs.structural_tag | structured_outputs.structural_tag: is not "
            "supported");
  EXPECT_NE(chat_refusal(R"("structured_outputs":{"shape":"a"})"), "accepted");
  EXPECT_NE(chat_refusal(R"("regex":"a","ebnf":"root ::= \"a\"")"), "accepted");
  EXPECT_NE(chat_refusal(R"("guided_choice":[])"), "accepted");
  EXPECT_EQ(chat_refusal(R"("response_format":{"type":"xml"})"),
            "response_format.type | response_format.type: must be one of text, json_object, "
            "json_schema, got \"xml\"");
  EXPECT_EQ(chat_refusal(R"("response_format":{"type":"json_schema"})"),
            "response_format.json_schema.schema | response_format.json_schema.schema: is missing");
  EXPECT_EQ(
      chat_refusal("\"guided_grammar\":\"" + std::string(limits::kGrammarBytesMax + 1, 'x') + "\""),
      "guided_grammar | guided_grammar: must have 1 to 65536 bytes, got 65537");
}

}  // namespace
}  // namespace pdjob::openai
