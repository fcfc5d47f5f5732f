#include "batch/catalog/books.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/resource.h>

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
  books->when_stored([&] { order += "a"; });
  EXPECT_EQ(order, "a") << "nothing to wait for";
  books->change({.files = {file(1)}, .batches = {}, .erased = {}}, [&] { order += "1"; });
  books->when_stored([&] { order += "b"; });
  books->change({.files = {file(2)}, .batches = {}, .erased = {}}, [&] { order += "2"; });
  books->when_stored([&] { order += "c"; });
  EXPECT_EQ(order, "a");
  ASSERT_TRUE(net::run_until(loop, [&] { return order.size() == 5; }));
  EXPECT_EQ(order, "a1b2c");
}

// While it lives, no file of this process grows: as on a full disk.
class NoRoom {
 public:
  NoRoom() {
    (void)signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit none{.rlim_cur = 1, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  ~NoRoom() { (void)setrlimit(RLIMIT_FSIZE, &before_); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  rlimit before_{};
};

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

TEST_F(BooksTest, StrangeFilesAreSweptAndThoseOfUnfinishedBatchesAreKept) {
  BatchRecord batch{.number = 1, .id = "batch_1", .tenant = "a", .output_file_id = "file-out"};
  BatchRecord over{.number = 2, .id = "batch_2", .tenant = "a", .state = BatchState::kCompleted};
  const KeptIds kept = kept_ids({.files = {file(3)}, .batches = {batch, over}, .erased = {}});
  EXPECT_TRUE(kept.files.contains("file-3") && kept.files.contains("file-out"));
  EXPECT_EQ(kept.batches, std::set<std::string>{"batch_1"});
  bool written = false;
  books->run([](FileStore& store) -> Books::Then {
    EXPECT_TRUE(store.begin("file-lost") && store.finish("file-lost"));
    return {};
  });
  store(file(3));
  books->run([&](FileStore& /*store*/) -> Books::Then { return [&] { written = true; }; });
  ASSERT_TRUE(net::run_until(loop, [&] { return written; }));
  open();
  EXPECT_FALSE(std::filesystem::exists(books->file_path("file-lost")));
}

TEST_F(BooksTest, IdsCannotBeGuessed) {
  const std::string id = books->new_id("file-");
  EXPECT_EQ(id.size(), 5U + 32U);
  EXPECT_NE(id, books->new_id("file-"));
}

}  // namespace
}  // namespace pdjob::batch
