#include "openai/openai_embedding.h"

#include <gtest/gtest.h>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

ApiRequest parsed(const std::string& body) {
  auto request = parse_api_request(ApiKind::kEmbedding, body);
  EXPECT_TRUE(request) << body << ": " << (request ? "" : request.error().message);
  return request ? *std::move(request) : ApiRequest();
}

std::string refused(const std::string& body) {
  const auto request = parse_api_request(ApiKind::kEmbedding, body);
  return request ? "" : request.error().message;
}

TEST(EmbeddingRequest, HasTextsOrTokenIds) {
  EXPECT_EQ(parsed(R"({"input":"a"})").prompts, std::vector<std::string>{"a"});
  EXPECT_EQ(parsed(R"({"input":["a","b"]})").prompts.size(), 2U);
  EXPECT_EQ(parsed(R"({"input":[1,2]})").token_prompts, (std::vector<std::vector<Token>>{{1, 2}}));
  const ApiRequest request = parsed(
      R"({"model":"m","input":[[1],[2,3]],"encoding_format":"base64","dimensions":8,"user":"u"})");
  EXPECT_EQ(request.token_prompts.size(), 2U);
  EXPECT_TRUE(request.base64);
  EXPECT_EQ(request.dimensions, 8U);
  EXPECT_EQ(request.stop.max_tokens, 0);
  EXPECT_FALSE(parsed(R"({"input":"a","stream":true})").stream) << "unknown here";
}

TEST(EmbeddingRequest, RefusesWhatWouldChangeItsResult) {
  EXPECT_EQ(refused("{}"), "input: is missing");
  for (const char* body :
       {R"({"input":[]})", R"({"input":7})", R"({"input":[1,"a"]})", R"({"input":{"a":1}})",
        R"({"input":"a","encoding_format":"int8"})", R"({"input":"a","encoding_format":1})",
        R"({"input":"a","dimensions":0})", R"({"input":"a","dimensions":"8"})",
        R"({"input":"a","truncate_prompt_tokens":5})", R"({"input":"a","normalize":false})",
        R"({"input":"a","add_special_tokens":false})", R"({"messages":[{"role":"user"}]})"}) {
    EXPECT_NE(refused(body), "") << body;
  }
}

std::string reply_with(ReplyOptions options, std::span<const float> embedding) {
  options.kind = ApiKind::kEmbedding;
  options.model = "m";
  const auto form = reply_form(std::move(options), nullptr);
  std::string out;
  form->append_whole(out, std::vector<ReplyPart>{{.choice = 0, .embedding = embedding}},
                     {.prompt_tokens = 3}, "");
  return out;
}

TEST(EmbeddingReply, IsOpenais) {
  const std::vector<float> embedding = {0.6F, 0.8F, 0};
  EXPECT_EQ(reply_with({}, embedding),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.6,0.8,0]}],)"
            R"("model":"m","usage":{"prompt_tokens":3,"total_tokens":3}})");
  EXPECT_NE(reply_with({.dimensions = 1}, embedding).find(R"("embedding":[1])"), std::string::npos)
      << "of length 1 again";
  EXPECT_NE(reply_with({.dimensions = 2}, std::vector<float>{0, 0, 1}).find("[0,0]"),
            std::string::npos);
}

// RFC 4648, of little-endian floats: 1.0 is 00 00 80 3f.
TEST(EmbeddingReply, MayBeBase64) {
  const auto text = [](const std::vector<float>& embedding) {
    const std::string reply = reply_with({.base64 = true}, embedding);
    const size_t begin = reply.find(R"("embedding":")") + 13;
    return reply.substr(begin, reply.find('"', begin) - begin);
  };
  EXPECT_EQ(text({1}), "AACAPw==");
  EXPECT_EQ(text({1, 1}), "AACAPwAAgD8=");
  EXPECT_EQ(text({1, 1, -1}), "AACAPwAAgD8AAIC/");
  EXPECT_EQ(text({}), "");
}

TEST(Embedding, IsAskedForAsNumbers) {
  EXPECT_EQ(embedding_request("e5", "a \"b\""),
            R"({"model":"e5","input":"a \"b\"","encoding_format":"float"})");
  EXPECT_EQ(embedding_request("", "a"), R"({"input":"a","encoding_format":"float"})");
}

TEST(Embedding, IsTheFirstVectorOfTheReply) {
  const auto vector = parse_embedding(
      R"({"object":"list","data":[{"index":0,"embedding":[1, -0.5, 2e-3]},{"embedding":[9]}]})");
  ASSERT_TRUE(vector.has_value());
  EXPECT_EQ(*vector, (std::vector<float>{1, -0.5F, 2e-3F}));
}

TEST(Embedding, IsNotThereWhereTheReplyHasNone) {
  std::string huge = R"({"data":[{"embedding":[0)";
  for (size_t i = 0; i < limits::kEmbeddingDimensionsMax; ++i) {
    huge += ",0";
  }
  for (const std::string& reply :
       {std::string(), std::string("no JSON"), std::string("{}"), std::string(R"({"data":[]})"),
        std::string(R"({"data":[{"embedding":[]}]})"),
        std::string(R"({"data":[{"embedding":"AAAA"}]})"),
        std::string(R"({"data":[{"embedding":[1,"x"]}]})"), huge + "]}]}"}) {
    EXPECT_FALSE(parse_embedding(reply)) << reply.substr(0, 60);
  }
}

}  // namespace
}  // namespace pdjob::openai
