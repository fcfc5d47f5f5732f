#include "openai/abort_request.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::openai {
namespace {

using Names = std::set<std::string, std::less<>>;

AbortRequest parsed(const std::string& body) {
  const auto result = parse_abort(AbortForm::kSglang, body);
  EXPECT_TRUE(result) << body;
  return *result;
}
bool refused(const std::string& body) { return !parse_abort(AbortForm::kSglang, body); }

TEST(AbortRequest, NamesOneRequestOrSeveralOrAll) {
  EXPECT_EQ(parsed(R"({"rid":"a"})").names, Names{"a"});
  EXPECT_EQ(parsed(R"({"rid":["a","b"],"abort_all":false})").names, (Names{"a", "b"}));
  EXPECT_TRUE(parsed(R"({"rid":"","abort_all":true})").all);
  EXPECT_TRUE(parsed(R"({"abort_all":true})").means("anything"));
}

TEST(AbortRequest, WithoutANameMeansNothing) {
  for (const char* body : {"{}", R"({"rid":""})", R"({"rid":[]})", R"({"rid":null})"}) {
    EXPECT_FALSE(parsed(body).means("")) << body;
    EXPECT_FALSE(parsed(body).means("a")) << body;
  }
}

TEST(AbortRequest, ANameMeansItsWholeBatch) {
  const AbortRequest asked = parsed(R"({"rid":"a"})");
  EXPECT_TRUE(asked.means("a"));
  EXPECT_TRUE(asked.means("a_12"));
  EXPECT_FALSE(asked.means("a1"));
  EXPECT_FALSE(asked.means("a_"));
  EXPECT_FALSE(asked.means("a_b"));
  EXPECT_FALSE(asked.means("a_1_2"));
}

TEST(AbortRequest, MeansAnExchangeByItsLegAndNotByTheNumberRule) {
  const AbortRequest asked = parsed(R"({"rid":["n-1","n-2/0","n-2/11","n-2"]})");
  EXPECT_TRUE(asked.part_of("n-1").all);
  EXPECT_TRUE(asked.part_of("n-2").all);
  EXPECT_FALSE(asked.part_of("n-1_3").all);
  EXPECT_FALSE(asked.part_of("").all);
  const AbortRequest part = parsed(R"({"rid":["n-2/0","n-2/11","n-20/1"]})").part_of("n-2");
  EXPECT_FALSE(part.all);
  EXPECT_EQ(part.names, (Names{leg_prompt("n-2", 0), leg_prompt("n-2", 11)}));
  EXPECT_TRUE(AbortRequest{.all = true}.part_of("n-2").all);
}

TEST(AbortRequest, RefusesWrongTypes) {
  EXPECT_TRUE(refused(R"({"rid":5})"));
  EXPECT_TRUE(refused(R"({"rid":[5]})"));
  EXPECT_TRUE(refused(R"({"abort_all":"yes"})"));
  EXPECT_TRUE(refused("[]"));
  std::string many = R"({"rid":["a")";
  for (int i = 0; i < 5000; ++i) {
    many += R"(,"b")";
  }
  EXPECT_TRUE(refused(many + "]}"));
}

TEST(AbortRequest, OfVllmMeansAllWithoutAList) {
  EXPECT_TRUE(parse_abort(AbortForm::kVllm, "{}")->all);
  const auto some = *parse_abort(AbortForm::kVllm, R"({"request_ids":["x"]})");
  EXPECT_FALSE(some.all);
  EXPECT_TRUE(some.means("x"));
  EXPECT_FALSE(parse_abort(AbortForm::kVllm, R"({"request_ids":[]})")->all);
}

TEST(AbortRequest, ReadsWhatItWrote) {
  const AbortRequest asked{.names = {"a\"", "b"}};
  EXPECT_EQ(parsed(abort_request_body(asked)).names, asked.names);
  EXPECT_TRUE(parsed(abort_request_body({.all = true})).all);
}

}  // namespace
}  // namespace pdjob::openai
