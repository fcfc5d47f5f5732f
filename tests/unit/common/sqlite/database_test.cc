#include "common/sqlite/database.h"

#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pdjob {
namespace {

constexpr const char* kFirst[] = {"CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT);"};
constexpr const char* kSecond[] = {kFirst[0], "CREATE TABLE others (id INTEGER);"};

class DatabaseTest : public testing::Test {
 protected:
  DatabaseTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~DatabaseTest() override { std::filesystem::remove_all(folder_); }
  Result<std::unique_ptr<Database>> open(std::span<const char* const> layout = kFirst) {
    return Database::open(file_, layout);
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("pdjob-database-" + std::to_string(getpid()));
  const std::string file_ = folder_ / "a.sqlite";
};

TEST_F(DatabaseTest, AStatementRunsAgainWithOtherValues) {
  const auto database = open().value();
  Statement insert = database->prepare("INSERT INTO things VALUES (?, ?)");
  ASSERT_TRUE(insert.bind(int64_t{1}).bind("one").finish());
  ASSERT_TRUE(insert.bind(int64_t{7}).bind_null().finish());
  EXPECT_EQ(database->last_row_id(), 7);
  Statement all = database->prepare("SELECT id, name FROM things ORDER BY id");
  ASSERT_TRUE(*all.step());
  EXPECT_EQ(all.number(0), 1);
  EXPECT_EQ(all.text(1), "one");
  ASSERT_TRUE(*all.step());
  EXPECT_TRUE(all.is_null(1));
  EXPECT_FALSE(*all.step());
  ASSERT_TRUE(database->run("DELETE FROM things"));
  EXPECT_EQ(database->changes(), 2);
}

TEST_F(DatabaseTest, AWrongStatementFailsAtItsFirstStep) {
  const auto database = open().value();
  EXPECT_FALSE(database->prepare("SELECT nothing FROM nowhere").step());
  EXPECT_FALSE(database->prepare("INSERT INTO things VALUES (1, 2)").bind("one too many").finish());
}

TEST_F(DatabaseTest, WorkInOneTransactionHappensAsAWholeOrNotAtAll) {
  const auto database = open().value();
  const auto insert_then = [&](const Status& end) {
    return database->run_whole([&]() -> Status {
      PDJOB_TRY_STATUS(database->run("INSERT INTO things VALUES (NULL, 'x')"));
      return end;
    });
  };
  EXPECT_FALSE(insert_then(Error{ErrorCode::kCancelled, "no"}));
  EXPECT_EQ(database->number("SELECT count(*) FROM things").value(), 0);
  EXPECT_TRUE(insert_then(ok()));
  EXPECT_EQ(database->number("SELECT count(*) FROM things").value(), 1);
}

TEST_F(DatabaseTest, AnOlderFileGetsTheStepsThatItLacks) {
  ASSERT_TRUE(open().value()->run("INSERT INTO things VALUES (1, 'kept')"));
  for (int turn = 0; turn < 2; ++turn) {
    const auto database = open(kSecond).value();
    EXPECT_EQ(database->number("SELECT count(*) FROM things").value(), 1);
    EXPECT_EQ(database->number("SELECT count(*) FROM others").value(), 0);
  }
}

TEST_F(DatabaseTest, ALaterFileIsRefused) {
  ASSERT_TRUE(open(kSecond));
  const auto opened = open(kFirst);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(opened.error().message,
            file_ + ": its layout is version 2, of a later pdjob: 1 is the last one known here");
}

TEST_F(DatabaseTest, AStepThatFailsLeavesTheFileAsItWas) {
  constexpr const char* kBroken[] = {kFirst[0], "CREATE TABLE others (id); nonsense;"};
  EXPECT_FALSE(open(kBroken));
  EXPECT_TRUE(open(kSecond)) << "others is not there yet";
}

TEST_F(DatabaseTest, IsReadByItsOwnerOnly) {
  using std::filesystem::perms;
  const auto database = open().value();
  for (const std::string& of : {file_, file_ + "-wal"}) {
    EXPECT_EQ(std::filesystem::status(of).permissions(), perms::owner_read | perms::owner_write)
        << of;
  }
}

TEST_F(DatabaseTest, IsOfOneProcessAtATime) {
  ASSERT_TRUE(open());
  const auto first = open().value();  // The file already has its layout.
  const auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(second.error().message.find("locked"), std::string::npos) << second.error().message;
  EXPECT_FALSE(Database::open("/no/such/folder/a.sqlite", kFirst));
}

TEST_F(DatabaseTest, AFileOfAnotherFormatIsCorrupt) {
  std::ofstream(file_) << std::string(4096, 'x');
  EXPECT_EQ(open().error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace pdjob
