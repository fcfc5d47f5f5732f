#include "store/file_disk.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pdjob::store {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSlab = 4096;
const BlockShape kShape{.rows = 64, .row_bytes = {8, 8}};    // 1024 bytes
const BlockShape kOther{.rows = 64, .row_bytes = {16, 16}};  // 2048 bytes

std::vector<std::byte> rows_of(uint64_t block, const BlockShape& shape = kShape) {
  return std::vector(slot_bytes(shape), static_cast<std::byte>(block));
}

StoredBlock stored(uint64_t block, SlotId slot, const BlockShape& shape = kShape) {
  StoredBlock made{.shape = shape, .digest = 1000 + block, .slot = slot};
  made.block.name = {.high = 3, .low = block};
  made.block.owner = BlockOwner{70 + block};
  if (block > 1) {
    made.block.parent = BlockName{.high = 3, .low = block - 1};
    made.block.depth = static_cast<uint32_t>(block) - 1;
  }
  return made;
}

struct FileDiskTest : testing::Test {
  FileDiskTest() { fs::create_directory(folder); }
  ~FileDiskTest() override { fs::remove_all(folder); }

  const std::string folder = testing::TempDir() + "/file_disk_" + std::to_string(getpid());
  const std::string path = folder + "/kv";
  std::vector<StoredBlock> found;

  std::unique_ptr<FileDisk> open(uint32_t slabs = 4, uint64_t slab_bytes = kSlab) {
    found.clear();
    return FileDisk::open(path, slab_bytes, slabs, found).value();
  }
  static void write(FileDisk& disk, uint64_t block, SlotId slot, const BlockShape& shape = kShape) {
    EXPECT_TRUE(disk.write(stored(block, slot, shape), rows_of(block, shape)));
  }
  static std::vector<std::byte> read(FileDisk& disk, SlotId slot) {
    std::vector<std::byte> rows(slot_bytes(kShape));
    EXPECT_TRUE(disk.read(slot, rows));
    return rows;
  }
  std::vector<uint64_t> names() const {
    std::vector<uint64_t> names;
    for (const StoredBlock& each : found) {
      names.push_back(each.block.name.low);
    }
    return names;
  }
  // Changes one byte of a file.
  void spoil(const std::string& file, uint64_t at) const {
    std::fstream bytes(path + "/0/" + file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put(byte);
    EXPECT_TRUE(bytes.good());
  }
};
using Names = std::vector<uint64_t>;

TEST_F(FileDiskTest, GivesBackWhatWasWritten) {
  const auto disk = open();
  write(*disk, 1, {0, 0});
  write(*disk, 2, {0, 3});
  EXPECT_EQ(read(*disk, {0, 0}), rows_of(1));
  EXPECT_EQ(read(*disk, {0, 3}), rows_of(2));
}

TEST_F(FileDiskTest, TheNextStoreFindsTheBlocks) {
  write(*open(), 2, {1, 3});
  const auto disk = open();
  ASSERT_EQ(names(), Names{2});
  const StoredBlock wanted = stored(2, {1, 3});
  EXPECT_EQ(found[0].block.parent, wanted.block.parent);
  EXPECT_EQ(found[0].block.owner, wanted.block.owner);
  EXPECT_EQ(found[0].block.depth, wanted.block.depth);
  EXPECT_EQ(found[0].shape, wanted.shape);
  EXPECT_EQ(found[0].digest, wanted.digest);
  EXPECT_EQ(found[0].slot, wanted.slot);
  EXPECT_EQ(read(*disk, {1, 3}), rows_of(2));
}

TEST_F(FileDiskTest, ASlotHasTheLastBlockThatWasWrittenThere) {
  const auto disk = open();
  write(*disk, 1, {0, 0});
  write(*disk, 2, {0, 0});
  open();  // The folder of another store.
  EXPECT_EQ(names(), Names{});
  EXPECT_EQ(read(*disk, {0, 0}), rows_of(2));
}

TEST_F(FileDiskTest, ASlabOfAnotherShapeHasNoneOfItsOldBlocks) {
  {
    const auto disk = open();
    write(*disk, 1, {0, 0});
    write(*disk, 2, {0, 1});
    write(*disk, 3, {0, 1}, kOther);
  }
  open();
  EXPECT_EQ(names(), Names{3});
}

TEST_F(FileDiskTest, AnEntryThatIsTornIsNoBlock) {
  {
    const auto disk = open();
    write(*disk, 1, {0, 0});
    write(*disk, 2, {0, 1});
  }
  spoil("0.blocks", 32 * 1024 + 10);
  open();
  EXPECT_EQ(names(), Names{2});
}

TEST_F(FileDiskTest, ATableThatIsCutKeepsItsBeginning) {
  {
    const auto disk = open();
    write(*disk, 1, {0, 0});
    write(*disk, 2, {0, 1});
  }
  fs::resize_file(path + "/0/0.blocks", 32 * 1024 + 100);
  open();
  EXPECT_EQ(names(), Names{1});
}

TEST_F(FileDiskTest, ATableWithAnotherHeaderIsRemoved) {
  for (const uint64_t at : {0, 8, 16, 20, 24}) {
    write(*open(), 1, {0, 0});
    spoil("0.blocks", at);
    open();
    EXPECT_EQ(names(), Names{}) << at;
    EXPECT_FALSE(fs::exists(path + "/0/0.blocks"));
    EXPECT_FALSE(fs::exists(path + "/0/0.kv"));
  }
}

TEST_F(FileDiskTest, ASmallerDiskRemovesItsLastSlabs) {
  {
    const auto disk = open();
    write(*disk, 1, {0, 0});
    write(*disk, 2, {3, 0});
  }
  open(3);
  EXPECT_EQ(names(), Names{1});
  EXPECT_FALSE(fs::exists(path + "/0/3.kv"));
  open(3, 2 * kSlab);
  EXPECT_EQ(names(), Names{});
}

TEST_F(FileDiskTest, RowsThatAreMissingAreAnError) {
  const auto disk = open();
  write(*disk, 1, {0, 1});
  std::vector<std::byte> rows(1024);
  EXPECT_FALSE(disk->read({0, 2}, rows));
  EXPECT_FALSE(disk->read({1, 0}, rows));
}

TEST_F(FileDiskTest, AFolderThatIsRemovedIsAnErrorAndNoMore) {
  const auto disk = open();
  write(*disk, 1, {0, 0});
  fs::remove_all(path);
  std::vector<std::byte> rows(1024);
  EXPECT_FALSE(disk->read({0, 0}, rows));
  const Status written = disk->write(stored(1, {0, 0}), rows_of(1));
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find(path), std::string::npos) << written.error().message;
}

TEST_F(FileDiskTest, StoresOnOneMachineHaveFoldersOfTheirOwn) {
  const auto first = open();
  const auto second = open();
  EXPECT_EQ(first->path(), path + "/0");
  EXPECT_EQ(second->path(), path + "/1");
}

TEST_F(FileDiskTest, OthersCanReadNothing) {
  write(*open(), 1, {0, 0});
  struct stat rights{};
  for (const char* const name : {"", "/0"}) {
    ASSERT_EQ(::stat((path + name).c_str(), &rights), 0);
    EXPECT_EQ(rights.st_mode & 077U, 0U) << name;
  }
  for (const char* const name : {"/0/0.kv", "/0/0.blocks", "/0/lock"}) {
    ASSERT_EQ(::stat((path + name).c_str(), &rights), 0);
    EXPECT_EQ(rights.st_mode & 077U, 0U) << name;
  }
}

TEST_F(FileDiskTest, RefusesAFolderToWhichOthersMayWrite) {
  fs::create_directory(path);
  fs::permissions(path, fs::perms::all);
  EXPECT_FALSE(FileDisk::open(path, kSlab, 4, found));
}

TEST_F(FileDiskTest, FollowsNoLink) {
  const auto disk = open();
  fs::create_symlink(folder + "/elsewhere", path + "/0/0.kv");
  EXPECT_FALSE(disk->write(stored(1, {0, 0}), rows_of(1)));
  EXPECT_FALSE(fs::exists(folder + "/elsewhere"));
}

}  // namespace
}  // namespace pdjob::store
