#include "router/cache/request_digest.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

constexpr std::string_view kChat = "/v1/chat/completions";

RequestDigest digest(const std::string& body, std::string_view path = kChat,
                     std::string_view authorization = "") {
  auto made = request_digest(path, authorization, body);
  EXPECT_TRUE(made.has_value()) << body;
  return made ? *made : RequestDigest{};
}

TEST(RequestDigest, LeavesOutOrderAndWhiteSpaceOfTheBody) {
  const std::string whole = digest(R"({"model":"m","prompt":"a b","temperature":0})").whole;
  EXPECT_EQ(digest("{ \"temperature\" : 0,\n\"prompt\":\"a b\" ,\"model\":\"m\"}").whole, whole);
}

TEST(RequestDigest, TakesInAllThatMayChangeTheAnswer) {
  const std::string body = R"({"model":"m","prompt":"a b","temperature":0})";
  const std::string whole = digest(body).whole;
  for (const char* other : {R"({"model":"n","prompt":"a b","temperature":0})",
                            R"({"model":"m","prompt":"a  b","temperature":0})",
                            R"({"model":"m","prompt":"a b","temperature":0,"stream":true})",
                            R"({"model":"m","prompt":"a b","temperature":0,"user":"u"})",
                            R"({"model":"m","prompt":"a b","temperature":0,"max_tokens":12})"}) {
    EXPECT_NE(digest(other).whole, whole) << other;
  }
  EXPECT_NE(digest(body, "/v1/completions").whole, whole);
  EXPECT_NE(digest(body, kChat, "Bearer k").whole, whole);
  EXPECT_NE(digest(R"({"p":{"a":1,"b":2}})").whole, digest(R"({"p":{"b":2,"a":1}})").whole)
      << "the order inside a member is what a template sees";
}

TEST(RequestDigest, IsOfPartsThatCannotRunIntoEachOther) {
  EXPECT_NE(digest(R"({"a":1,"b":2})").whole, digest(R"({"a\":1,\"b":2})").whole);
  EXPECT_NE(digest("{}", "/v1/x", "y").whole, digest("{}", "/v1/", "xy").whole);
}

TEST(RequestDigest, IsNotMadeWhereReadersDiffer) {
  EXPECT_FALSE(request_digest(kChat, "", R"({"seed":1,"temperature":0,"seed":2})"));
  EXPECT_FALSE(request_digest(kChat, "", R"({"seed":1,"se\u0065d":1})"));
  EXPECT_FALSE(request_digest(kChat, "", "[]"));
}

TEST(RequestDigest, KnowsWhichRequestsHaveTheSameAnswerAgain) {
  for (const char* body : {R"({"temperature":0})", R"({"temperature": 0.0})", R"({"seed":7})",
                           R"({"seed":7,"temperature":1})"}) {
    EXPECT_TRUE(digest(body).deterministic) << body;
  }
  for (const char* body : {"{}", R"({"temperature":0.1})", R"({"temperature":null})",
                           R"({"seed":null})", R"({"seed":-1})", R"({"temperature":"0"})"}) {
    EXPECT_FALSE(digest(body).deterministic) << body;
  }
}

TEST(RequestDigest, FindsTheQuestionOfACompletion) {
  const RequestDigest one = digest(R"({"prompt":"What\nis it?","temperature":0})");
  const RequestDigest other = digest(R"({"temperature":0, "prompt":"How?"})");
  EXPECT_EQ(one.question, "What\nis it?");
  EXPECT_EQ(one.context, other.context);
  EXPECT_NE(one.whole, other.whole);
  EXPECT_NE(digest(R"({"prompt":"How?","temperature":0,"n":2})").context, one.context);
}

TEST(RequestDigest, FindsTheQuestionOfAChat) {
  const auto chat = [](const std::string& messages) {
    return digest(R"({"temperature":0,"messages":[)" + messages + "]}");
  };
  const std::string system = R"({"role":"system","content":"Be kind."},)";
  const RequestDigest one = chat(system + R"({"role":"user","content":"What?"})");
  EXPECT_EQ(one.question, "What?");
  EXPECT_EQ(chat(system + R"({"content":"How?", "role":"user"})").context, one.context);
  EXPECT_NE(chat(R"({"role":"user","content":"What?"})").context, one.context);
  EXPECT_NE(chat(system + R"({"role":"user","content":"What?","name":"Ann"})").context,
            one.context);
}

TEST(RequestDigest, FindsNoQuestionWhereWordsAreNotAll) {
  for (const char* body :
       {"{}", R"({"prompt":["a","b"]})", R"({"prompt":[1,2]})", R"({"prompt":"a","echo":true})",
        R"({"messages":[]})", R"({"messages":[{"role":"assistant","content":"a"}]})",
        R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
        R"({"messages":[{"role":"user","content":"a","content":"b"}]})"}) {
    const RequestDigest made = digest(body);
    EXPECT_EQ(made.question, "") << body;
    EXPECT_EQ(made.context, "") << body;
  }
}

// Found by a fuzzer: white space was removed where a worker would have seen a string.
TEST(RequestDigest, WhatIsNoJsonInsideHasNone) {
  EXPECT_TRUE(request_digest("/v1/completions", "", R"({"prompt":"a","x":[1, {"y": "z"}]})"));
  for (const char* inside : {R"([1 2])", R"({"y" "z"})", R"(["a \ "b"])", R"([tru])"}) {
    EXPECT_FALSE(
        request_digest("/v1/completions", "", R"({"prompt":"a","x":)" + std::string(inside) + "}"))
        << inside;
  }
}

}  // namespace
}  // namespace pdjob::router
