#include "batch/catalog/surplus_batches.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

class SurplusBatchesTest : public testing::Test {
 protected:
  SurplusBatchesTest() {
    for (int64_t number = 1; number <= 4; ++number) {
      BatchRecord one = batch(number, "a", 1000);
      one.state = number == 2 ? BatchState::kInProgress : BatchState::kCompleted;
      batches.put(one);
    }
    BatchRecord other = batch(9, "b", 1000);
    other.state = BatchState::kFailed;
    batches.put(other);
  }
  static BatchRecord batch(int64_t number, const std::string& tenant, size_t bytes) {
    return {.number = number,
            .id = std::to_string(number),
            .tenant = tenant,
            .metadata = std::string(bytes, 'x')};
  }

  Shelf<BatchRecord> batches;
};

TEST_F(SurplusBatchesTest, TheOldestEndedOnesOfTheSameTenantGo) {
  const BatchRecord next = batch(10, "a", 0);
  EXPECT_TRUE(surplus_batches(batches, next, {.batches = 5}).empty());
  EXPECT_EQ(surplus_batches(batches, next, {.batches = 4}), std::vector<std::string>{"1"});
  EXPECT_EQ(surplus_batches(batches, next, {.batches = 3}), (std::vector<std::string>{"1", "3"}))
      << "2 has not ended";
}

TEST_F(SurplusBatchesTest, LongMetadataLeaveRoomForFewer) {
  const BatchRecord next = batch(10, "a", 3000);
  const uint64_t all = 7000 + 5 * sizeof(BatchRecord);
  EXPECT_TRUE(surplus_batches(batches, next, {.bytes = all}).empty());
  EXPECT_EQ(surplus_batches(batches, next, {.bytes = all - 1}), std::vector<std::string>{"1"});
}

}  // namespace
}  // namespace pdjob::batch
