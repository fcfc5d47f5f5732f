#include "common/config/number_list.h"

#include <gtest/gtest.h>

namespace pdjob {
namespace {

TEST(NumberList, IsReadAndWrittenAsTheKernelDoes) {
  EXPECT_EQ(parse_number_list("0-3,8,10-11"), (NumberList{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_number_list(""), NumberList());
  EXPECT_EQ(number_list_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(number_list_text({}), "");
  for (const char* const wrong :
       {"x", "1-", "-1", "3-1", "1,1", "2,1", "0-3,2", "1,", ",1", "0-65536", "1 ", "0x1"}) {
    EXPECT_EQ(parse_number_list(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace pdjob
