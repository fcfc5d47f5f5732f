#include "batch/api/api_words.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

TEST(ApiWords, ReadTheQueryOfAList) {
  const ListLimits limits{.usual = 20, .max = 100};
  const auto read = [&](const char* query) { return parse_list_query(query, limits); };
  const auto parsed = *read("limit=5&after=x&order=asc&purpose=batch&other");
  EXPECT_EQ(parsed.limit, 5U);
  EXPECT_EQ(parsed.after, "x");
  EXPECT_EQ(parsed.order, ListOrder::kOldestFirst);
  EXPECT_EQ(parsed.purpose, "batch");
  EXPECT_EQ(read("")->limit, 20U);
  for (const char* const wrong : {"limit=0", "limit=101", "limit=x", "limit=-1", "order=up"}) {
    EXPECT_FALSE(read(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace pdjob::batch
