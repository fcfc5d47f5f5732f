#include "engine/gpu_kv.h"

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

constexpr uint32_t kRows = 256;

TEST(GpuKv, WindowsThatTheLibraryHasPutElsewhereAreRefused) {
  const std::vector<uint32_t> row_bytes = {64, 64};
  const auto kv =
      GpuKv::open(PDJOB_FAKE_CUDART, 0, {.sequences = 1, .rows = kRows, .row_bytes = row_bytes});
  ASSERT_TRUE(kv) << kv.error().message;
  std::vector<std::byte> elsewhere(2 * size_t{kRows} * 64);
  KvRegion region{
      .windows = {{elsewhere.data(), 0, 64}, {elsewhere.data() + size_t{kRows} * 64, 0, 64}},
      .rows_max = kRows};
  const Status shared = (*kv)->share_windows({&region, 1});
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(shared.error().message,
            "engine.gpu is true, but libllama has not put this model's KV into one piece of the "
            "GPU's memory");
  EXPECT_EQ(region.shared_fd, -1);
  EXPECT_FALSE(region.device);
}

TEST(GpuKv, AGpuThatIsNotThereIsRefused) {
  EXPECT_EQ(GpuKv::open("/nonexistent/libcudart.so", 0, {}).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace pdjob::engine
