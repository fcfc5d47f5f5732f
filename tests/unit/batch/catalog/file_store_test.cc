#include "batch/catalog/file_store.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/batch/scratch_folder.h"

namespace pdjob::batch {
namespace {

class FileStoreTest : public testing::Test {
 protected:
  bool there(const std::string& name) const {
    return std::filesystem::exists(folder.path() + "/" + name);
  }

  const ScratchFolder folder;
  FileStore store = *FileStore::open(folder.path());
};

TEST_F(FileStoreTest, AFileIsThereOnceItIsWhole) {
  ASSERT_TRUE(store.begin("file-1"));
  ASSERT_TRUE(store.append("file-1", "hello "));
  ASSERT_TRUE(store.append("file-1", "world"));
  EXPECT_FALSE(there("files/file-1"));
  ASSERT_TRUE(store.finish("file-1"));
  EXPECT_EQ(*store.read("file-1", 0, 100), "hello world");
  EXPECT_EQ(*store.read("file-1", 6, 3), "wor");
  EXPECT_EQ(store.read("file-2", 0, 1).error().code, ErrorCode::kNotFound);
  store.remove("file-1");
  EXPECT_FALSE(there("files/file-1"));
}

TEST_F(FileStoreTest, ADiscardedUploadLeavesNothing) {
  ASSERT_TRUE(store.begin("file-1"));
  ASSERT_TRUE(store.append("file-1", "x"));
  store.discard("file-1");
  EXPECT_FALSE(there("files/file-1.part"));
  EXPECT_FALSE(store.append("file-1", "y"));
  EXPECT_FALSE(store.finish("file-1"));
}

TEST_F(FileStoreTest, ABatchKeepsItsInput) {
  ASSERT_TRUE(store.begin("file-1"));
  ASSERT_TRUE(store.append("file-1", "rows"));
  ASSERT_TRUE(store.finish("file-1"));
  ASSERT_TRUE(store.make_batch("batch_1", "file-1"));
  ASSERT_TRUE(store.make_batch("batch_1", "file-1")) << "again, after a crash";
  store.remove("file-1");
  EXPECT_EQ(folder.read("batches/batch_1/input.jsonl"), "rows");
  EXPECT_EQ(store.batch_bytes(), 0U) << "its input is a file's bytes";
  folder.write("batches/batch_1/ledger.sqlite", "12345");
  EXPECT_EQ(store.batch_bytes(), 5U);
  store.remove_batch("batch_1");
  EXPECT_FALSE(there("batches/batch_1"));
  EXPECT_FALSE(store.make_batch("batch_2", "file-1"));
}

TEST_F(FileStoreTest, ForgetsWhatADeathCutOff) {
  for (const char* const name : {"files/file-1", "files/file-2", "files/file-3.part"}) {
    folder.write(name, "x");
  }
  std::filesystem::create_directories(folder.path() + "/batches/batch_1/parts");
  std::filesystem::create_directories(folder.path() + "/batches/batch_2/parts");
  store.keep_only({"file-1"}, {"batch_2"});
  EXPECT_TRUE(there("files/file-1"));
  EXPECT_FALSE(there("files/file-2"));
  EXPECT_FALSE(there("files/file-3.part"));
  EXPECT_FALSE(there("batches/batch_1"));
  EXPECT_TRUE(there("batches/batch_2"));
}

}  // namespace
}  // namespace pdjob::batch
