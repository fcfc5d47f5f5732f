#include "batch/catalog/file_store.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/batch/scratch_folder.h"
#include "tests/unit/batch/synced_folders.h"

namespace pdjob::batch {
namespace {

class FileStoreTest : public testing::Test {
 protected:
  bool there(const std::string& name) const {
    return std::filesystem::exists(folder.path() + "/" + name);
  }

  static std::string file_id(char digit) { return "file-" + std::string(32, digit); }
  static std::string batch_id(char digit) { return "batch_" + std::string(32, digit); }

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
  const std::string batch = batch_id('1');
  ASSERT_TRUE(store.begin("file-1"));
  ASSERT_TRUE(store.append("file-1", "rows"));
  ASSERT_TRUE(store.finish("file-1"));
  ASSERT_TRUE(store.make_batch(batch, "file-1"));
  ASSERT_TRUE(store.make_batch(batch, "file-1")) << "again, after a crash";
  EXPECT_EQ(store.batch_bytes().at(batch), 0U) << "its input is a file's bytes";
  folder.write("batches/" + batch + "/ledger.sqlite", "12345");
  EXPECT_EQ(store.batch_bytes().at(batch), 5U);
  store.remove("file-1");
  EXPECT_EQ(folder.read("batches/" + batch + "/input.jsonl"), "rows");
  store.remove_batch(batch);
  EXPECT_FALSE(there("batches/" + batch));
  EXPECT_FALSE(store.make_batch(batch_id('2'), "file-1"));
}

TEST_F(FileStoreTest, TheInputOfABatchCountsOnceItsFileIsDeleted) {
  ASSERT_TRUE(store.begin("file-1"));
  ASSERT_TRUE(store.append("file-1", "rows"));
  ASSERT_TRUE(store.finish("file-1"));
  ASSERT_TRUE(store.make_batch(batch_id('1'), "file-1"));
  store.remove("file-1");
  EXPECT_EQ(store.batch_bytes().at(batch_id('1')), 4U) << "nobody else counts these bytes";
}

TEST_F(FileStoreTest, SweepsOnlyItsOwnNames) {
  EXPECT_FALSE(store.holds_any());
  const std::string kept = file_id('1');
  const std::string lost = file_id('2');
  for (const std::string& name :
       {"files/" + kept, "files/" + lost, "files/" + file_id('3') + ".part",
        std::string("files/notes.txt"), std::string("files/file-1"), "files/" + lost + ".bak",
        "files/" + batch_id('1')}) {
    folder.write(name, "x");
  }
  for (const std::string& name : {batch_id('1'), batch_id('2'), std::string("lost+found")}) {
    std::filesystem::create_directories(folder.path() + "/batches/" + name + "/parts");
  }
  EXPECT_TRUE(store.holds_any());
  store.keep_only({kept}, {batch_id('2')});
  EXPECT_TRUE(there("files/" + kept));
  EXPECT_FALSE(there("files/" + lost));
  EXPECT_FALSE(there("files/" + file_id('3') + ".part"));
  EXPECT_TRUE(there("files/notes.txt")) << "a stranger's";
  EXPECT_TRUE(there("files/file-1")) << "no id";
  EXPECT_TRUE(there("files/" + lost + ".bak"));
  EXPECT_TRUE(there("files/" + batch_id('1')));
  EXPECT_FALSE(there("batches/" + batch_id('1')));
  EXPECT_TRUE(there("batches/" + batch_id('2')));
  EXPECT_TRUE(there("batches/lost+found"));
}

TEST_F(FileStoreTest, NewFoldersAndNamesAreSyncedToTheDisk) {
  SyncedFolders synced;
  FileStore fresh = *FileStore::open(folder.path() + "/a/b");
  for (const char* const name : {"", "/a", "/a/b"}) {
    EXPECT_TRUE(synced.has(folder.path() + name)) << name;
  }
  ASSERT_TRUE(fresh.begin("file-1"));
  EXPECT_TRUE(synced.has(folder.path() + "/a/b/files"));
  ASSERT_TRUE(fresh.finish("file-1"));
  synced.clear();
  ASSERT_TRUE(fresh.make_batch(batch_id('1'), "file-1"));
  EXPECT_TRUE(synced.has(folder.path() + "/a/b/batches")) << "the batch's folder";
  EXPECT_TRUE(synced.has(folder.path() + "/a/b/batches/" + batch_id('1'))) << "its input";
}

}  // namespace
}  // namespace pdjob::batch
