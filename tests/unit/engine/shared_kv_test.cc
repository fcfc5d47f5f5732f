#include "engine/shared_kv.h"

#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace pdjob::engine {
namespace {

TEST(SharedKv, RowsAreRoundedToWholePages) {
  // 384 bytes are F16 rows of 192 values; 204 bytes are the same in q8_0.
  EXPECT_EQ(round_up_rows(1, std::vector<uint32_t>{384, 384}), 256U);
  EXPECT_EQ(round_up_rows(257, std::vector<uint32_t>{384}), 512U);
  EXPECT_EQ(round_up_rows(1, std::vector<uint32_t>{204, 204}), 1024U);
  EXPECT_EQ(round_up_rows(1025, std::vector<uint32_t>{204, 384}), 2048U);
  for (const uint32_t bytes : {1U, 34U, 204U, 272U, 384U, 1088U, 4096U, 5000U}) {
    const uint32_t rows = round_up_rows(1000, std::vector<uint32_t>{bytes});
    EXPECT_GE(rows, 1000U);
    EXPECT_EQ(rows % 256, 0U);
    EXPECT_EQ(uint64_t{rows} * bytes % 4096, 0U);
  }
}

TEST(SharedKv, WindowsThatAreNotWholePagesStayPrivate) {
  std::vector<std::byte> memory(8192);
  std::vector<KvRegion> regions(1);
  regions[0].rows_max = 1;
  regions[0].windows = {{memory.data() + 1, 0, 4096}};
  const auto shared = share_windows(regions);
  ASSERT_FALSE(shared.has_value());
  EXPECT_EQ(shared.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(regions[0].shared_fd, -1);
}

}  // namespace
}  // namespace pdjob::engine
