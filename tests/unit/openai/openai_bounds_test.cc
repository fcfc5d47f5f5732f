// Bounds on the costs of parsing a request.
#include <gtest/gtest.h>

#include "openai/openai_fields.h"
#include "tests/support/allocation_count.h"

namespace pdjob::openai {
namespace {

TEST(Fields, ReadingNumbersAllocatesNothing) {
  float number = 0;
  uint32_t integer = 0;
  uint64_t made = 0;
  const auto outcome =
      read_object(R"({"temperature": 0.5, "max_tokens": 7})", [&](const Fields& fields) {
        const uint64_t before = allocations_made;
        counted = true;
        fields.number("temperature", NumberRange{.min = 0, .max = 2}, number);
        fields.integer("max_tokens", IntegerRange{.min = 0, .max = 1000000}, integer);
        counted = false;
        made = allocations_made - before;
      });
  EXPECT_TRUE(outcome);
  EXPECT_EQ(number, 0.5F);
  EXPECT_EQ(integer, 7U);
  EXPECT_EQ(made, 0U);
}

}  // namespace
}  // namespace pdjob::openai
