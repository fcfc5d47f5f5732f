#include "openai/openai_embedding.h"

#include <gtest/gtest.h>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

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
