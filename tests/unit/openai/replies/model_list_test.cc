#include "openai/replies/model_list.h"

#include <gtest/gtest.h>

#include "net/control/message.h"

namespace pdjob::openai {
namespace {

TEST(ModelList, HasOneModelAndItsAdapters) {
  const ListedModels listed = parse_model_list(
      R"({"object":"list","data":[{"id":"m","created":9,"parent":null,"max_model_len":2048},
          {"id":"tone","parent":"m"},{"id":"sql","root":"/a","parent":"m","max_model_len":null}]})");
  EXPECT_EQ(listed.id, "m");
  EXPECT_EQ(listed.created, 9U);
  EXPECT_EQ(listed.context_max, 2048U);
  EXPECT_EQ(listed.adapters, (std::vector<std::string>{"sql", "tone"}));
  EXPECT_EQ(listed.adapters_left_out, 0U);
}

TEST(ModelList, NamesAdaptersAsRequestsDo) {
  const ListedModels listed =
      parse_model_list(R"({"data":[{"id":"m"},{"id":"sql","parent":"m"}]})", "{model}:{adapter}");
  EXPECT_EQ(listed.adapters, std::vector<std::string>{"m:sql"});
}

TEST(ModelList, WithSeveralModelsNamesNone) {
  EXPECT_EQ(parse_model_list(R"({"data":[{"id":"tiny"},{"id":"other"}]})").id, "");
  EXPECT_EQ(parse_model_list(R"({"data":[]})").id, "");
  EXPECT_EQ(parse_model_list("nonsense").id, "");
}

TEST(ModelList, IsBounded) {
  std::string cards = R"({"id":"m"})";
  for (size_t i = 0; i < net::kAdaptersMax + 3; ++i) {
    cards += R"(,{"id":"a)" + std::to_string(i) + R"(","parent":"m"})";
  }
  const ListedModels listed = parse_model_list(R"({"data":[)" + cards + "]}");
  EXPECT_EQ(listed.adapters.size(), net::kAdaptersMax);
  EXPECT_EQ(listed.adapters_left_out, 3U);
  const std::string longest(net::kAdapterNameBytesMax + 1, 'a');
  const ListedModels odd = parse_model_list(R"({"data":[{"id":"m"},{"id":")" + longest +
                                            R"(","parent":"m"},{"id":"a\n","parent":"m"}]})");
  EXPECT_TRUE(odd.adapters.empty());
  EXPECT_EQ(odd.adapters_left_out, 2U);
}

}  // namespace
}  // namespace pdjob::openai
