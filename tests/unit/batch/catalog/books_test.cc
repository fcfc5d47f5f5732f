#include "batch/catalog/books.h"

#include <gtest/gtest.h>

#include "tests/unit/batch/no_room.h"
#include "tests/unit/batch/scratch_folder.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::batch {
namespace {

class BooksTest : public testing::Test {
 protected:
  void SetUp() override { open(); }
  void open() {
    books.reset();
    books = Books::open(loop, folder.path() + "/api", [this](const std::string& why) {
              broken = why;
            }).value();
  }
  static FileRecord file(int64_t number) {
    return {.number = number, .id = "file-" + std::to_string(number), .tenant = "a", .bytes = 10};
  }
  void store(const FileRecord& file) {
    bool stored = false;
    books->change({.files = {file}, .batches = {}, .erased = {}}, [&] { stored = true; });
    ASSERT_TRUE(net::run_until(loop, [&] { return stored; }));
  }

  ScratchFolder folder;
  net::EventLoop loop;
  std::string broken;
  std::unique_ptr<Books> books;
};

TEST_F(BooksTest, AChangeIsSeenAtOnceAndSurvives) {
  bool stored = false;
  books->change({.files = {file(1)}, .batches = {}, .erased = {}}, [&] { stored = true; });
  EXPECT_NE(books->files().find("file-1"), nullptr);
  EXPECT_EQ(books->file_bytes(), 10U);
  ASSERT_TRUE(net::run_until(loop, [&] { return stored; }));
  open();
  EXPECT_NE(books->files().find("file-1"), nullptr);
  EXPECT_EQ(books->file_bytes(), 10U);
  EXPECT_EQ(books->next_number(), 2) << "a number is never used again";
}

TEST_F(BooksTest, WhatIsToldWaitsForTheChangesBeforeIt) {
  std::string order;
  books->when_stored([&] { order += 'a'; });
  EXPECT_EQ(order, "a") << "nothing to wait for";
  books->change({.files = {file(1)}, .batches = {}, .erased = {}}, [&] { order += '1'; });
  books->when_stored([&] { order += 'b'; });
  books->change({.files = {file(2)}, .batches = {}, .erased = {}}, [&] { order += '2'; });
  books->when_stored([&] { order += 'c'; });
  EXPECT_EQ(order, "a");
  ASSERT_TRUE(net::run_until(loop, [&] { return order.size() == 5; }));
  EXPECT_EQ(order, "a1b2c");
}

TEST_F(BooksTest, AChangeThatCannotBeWrittenIsNeverToldAndEndsTheProcess) {
  store(file(1));
  bool told = false;
  {
    const NoRoom full;
    books->change({.files = {file(2)}, .batches = {}, .erased = {}}, [&] { told = true; });
    books->when_stored([&] { told = true; });
    ASSERT_TRUE(net::run_until(loop, [&] { return !broken.empty(); }));
  }
  EXPECT_FALSE(told);
  open();
  EXPECT_EQ(books->files().find("file-2"), nullptr);
  EXPECT_NE(books->files().find("file-1"), nullptr);
}

TEST_F(BooksTest, NothingReachesTheDiskAfterAChangeThatCouldNotBeWritten) {
  store(file(1));
  bool removed = false;
  {
    const NoRoom full;
    books->change({.files = {}, .batches = {}, .erased = {"file-1"}}, {});
    ASSERT_TRUE(net::run_until(loop, [&] { return !broken.empty(); }));
  }
  books->run([&](FileStore& /*store*/) -> Books::Then {
    removed = true;
    return {};
  });
  books->change({.files = {file(2)}, .batches = {}, .erased = {}}, {});
  open();  // The end of the old process carries out what was asked.
  EXPECT_FALSE(removed) << "its bytes would be gone, and its record would not";
  EXPECT_NE(books->files().find("file-1"), nullptr);
  EXPECT_EQ(books->files().find("file-2"), nullptr);
}

TEST_F(BooksTest, OneFolderHasOneProcess) {
  EXPECT_FALSE(Books::open(loop, folder.path() + "/api", [](const std::string&) {}));
}

TEST_F(BooksTest, AnErasedFileFreesItsBytes) {
  store(file(1));
  books->change({.files = {}, .batches = {}, .erased = {"file-1"}}, {});
  EXPECT_EQ(books->files().find("file-1"), nullptr);
  EXPECT_EQ(books->file_bytes(), 0U);
}

TEST_F(BooksTest, WithoutItsCatalogItRefusesToStartAndRemovesNothing) {
  const std::string lost = "file-" + std::string(32, 'a');
  const std::string path = books->file_path(lost);
  books.reset();
  folder.write("api/files/" + lost, "bytes");
  for (const char* const damage : {"missing", "empty"}) {
    std::filesystem::remove(folder.path() + "/api/catalog.sqlite");
    std::filesystem::remove(folder.path() + "/api/catalog.sqlite-wal");
    if (std::string(damage) == "empty") {
      folder.write("api/catalog.sqlite", "");
    }
    const auto opened = Books::open(loop, folder.path() + "/api", [](const std::string&) {});
    ASSERT_FALSE(opened) << damage;
    EXPECT_NE(opened.error().message.find("put it back"), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(path)) << damage;
  }
  folder.write("api/catalog.sqlite", "no database, and long enough to be looked at by SQLite");
  EXPECT_FALSE(Books::open(loop, folder.path() + "/api", [](const std::string&) {}));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(BooksTest, FindsWhatHasExpiredTheOldestFirst) {
  for (const int64_t number : {1, 2, 3}) {
    FileRecord made = file(number);
    made.expires_at = 100 - number;
    store(made);
  }
  using Ids = std::vector<std::string>;
  EXPECT_EQ(books->files_expired_by(96, 9), Ids{});
  EXPECT_EQ(books->files_expired_by(98, 9), (Ids{"file-3", "file-2"}));
  EXPECT_EQ(books->files_expired_by(98, 1), Ids{"file-3"});
  BatchRecord batch{.number = 4, .id = "batch_4", .tenant = "a"};
  books->change({.files = {}, .batches = {batch}, .erased = {"file-3"}}, {});
  EXPECT_EQ(books->files_expired_by(98, 9), Ids{"file-2"});
  EXPECT_EQ(books->batches_ended_by(1000, 9), Ids{}) << "it has not ended";
  batch.state = BatchState::kFailed;
  batch.ended_at = 50;
  books->change({.files = {}, .batches = {batch}, .erased = {}}, {});
  EXPECT_EQ(books->batches_ended_by(50, 9), Ids{"batch_4"});
  books->change({.files = {}, .batches = {}, .erased = {"batch_4"}}, {});
  EXPECT_EQ(books->batches_ended_by(50, 9), Ids{});
}

TEST_F(BooksTest, BytesCountForTheirTenant) {
  store(file(1));
  books->count_upload("b", 7);
  EXPECT_EQ(books->file_bytes_of("a"), 10U);
  EXPECT_EQ(books->file_bytes_of("b"), 7U);
  EXPECT_EQ(books->file_bytes(), 17U);
  books->count_upload("b", -7);
  EXPECT_EQ(books->file_bytes_of("b"), 0U);
}

TEST_F(BooksTest, StrangeFilesAreSweptAndThoseOfUnfinishedBatchesAreKept) {
  BatchRecord batch{.number = 1, .id = "batch_1", .tenant = "a", .output_file_id = "file-out"};
  BatchRecord over{.number = 2, .id = "batch_2", .tenant = "a", .state = BatchState::kCompleted};
  const KeptIds kept = kept_ids({.files = {file(3)}, .batches = {batch, over}, .erased = {}});
  EXPECT_TRUE(kept.files.contains("file-3") && kept.files.contains("file-out"));
  EXPECT_EQ(kept.batches, std::set<std::string>{"batch_1"});
  bool written = false;
  const std::string lost = "file-" + std::string(32, '0');
  books->run([lost](FileStore& store) -> Books::Then {
    EXPECT_TRUE(store.begin(lost) && store.finish(lost));
    return {};
  });
  store(file(3));
  books->run([&](FileStore& /*store*/) -> Books::Then { return [&] { written = true; }; });
  ASSERT_TRUE(net::run_until(loop, [&] { return written; }));
  open();
  EXPECT_FALSE(std::filesystem::exists(books->file_path(lost)));
}

TEST_F(BooksTest, IdsCannotBeGuessed) {
  const std::string id = books->new_id("file-");
  EXPECT_EQ(id.size(), 5U + 32U);
  EXPECT_NE(id, books->new_id("file-"));
}

}  // namespace
}  // namespace pdjob::batch
