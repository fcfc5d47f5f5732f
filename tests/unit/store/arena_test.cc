#include "store/arena.h"

#include <cstring>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pdjob::store {
namespace {

constexpr uint64_t kSlab = uint64_t{1} << 20;
const BlockShape kShape{.rows = 64, .row_bytes = {48, 100}};

Place place(uint32_t slab, uint64_t offset) {
  return {.slot = {.slab = slab, .index = 0}, .offset = offset, .shape = {}};
}

TEST(ArenaTest, WindowsAreWhereTheDescriptorSaysTheyAre) {
  Arena arena(kSlab);
  const auto region = arena.allocate(place(0, 4096), kShape);
  ASSERT_TRUE(region);
  ASSERT_EQ(region->windows.size(), 2U);
  EXPECT_EQ(region->rows_max, 64U);
  EXPECT_EQ(region->shared_bytes, kSlab);
  for (const kvtransfer::Window& window : region->windows) {
    std::memcpy(window.base, "block", 5);
    char read[5] = {};
    ASSERT_EQ(pread(region->shared_fd, read, 5, static_cast<off_t>(window.shared_offset)), 5);
    EXPECT_EQ(std::string(read, 5), "block");
  }
  EXPECT_EQ(region->windows[0].shared_offset, 4096U);
  EXPECT_EQ(region->windows[1].shared_offset, 4096U + 64 * 48);
}

TEST(ArenaTest, ASlabStaysWhereItIs) {
  Arena arena(kSlab);
  const auto first = arena.allocate(place(0, 0), kShape);
  const auto other = arena.allocate(place(1, 0), kShape);
  ASSERT_TRUE(first && other);
  EXPECT_NE(first->shared_fd, other->shared_fd);
  const kvtransfer::Region again = arena.region(place(0, 0), kShape);
  EXPECT_EQ(again.windows[0].base, first->windows[0].base);
  EXPECT_EQ(again.shared_fd, first->shared_fd);
}

TEST(ArenaTest, PeersCannotResizeASlab) {
  Arena arena(kSlab);
  const auto region = arena.allocate(place(0, 0), kShape);
  ASSERT_TRUE(region);
  EXPECT_NE(ftruncate(region->shared_fd, 0), 0);
  EXPECT_NE(ftruncate(region->shared_fd, 2 * kSlab), 0);
}

TEST(ArenaTest, OnlyTheMemoryOfBlocksIsAllocated) {
  Arena arena(kSlab);
  const auto region = arena.allocate(place(0, 0), {.rows = 64, .row_bytes = {64}});
  ASSERT_TRUE(region);
  struct stat file{};
  ASSERT_EQ(fstat(region->shared_fd, &file), 0);
  EXPECT_EQ(file.st_blocks * 512, 4096);
}

}  // namespace
}  // namespace pdjob::store
