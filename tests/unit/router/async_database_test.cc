#include "router/async_database.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pdjob::router {
namespace {

struct AsyncDatabaseTest : testing::Test {
  AsyncDatabaseTest() { std::filesystem::remove_all(folder); }
  ~AsyncDatabaseTest() override {
    database.reset();
    std::filesystem::remove_all(folder);
  }
  void open() {
    database.reset();
    std::filesystem::create_directories(folder);
    auto opened = AsyncDatabase::open(file);
    ASSERT_TRUE(opened) << opened.error().message;
    database = std::move(*opened);
  }
  void insert(const std::string& id, const std::string& tenant = "t") {
    ASSERT_TRUE(database->insert({.id = id,
                                  .tenant = tenant,
                                  .path = "/p",
                                  .body = "{\"of\":\"" + id + "\"}",
                                  .created_at = 5}));
  }
  void answer(const std::string& id, const std::string& body, int64_t at = 10,
              uint32_t results_max = 100) {
    ASSERT_TRUE(database->answer(id, {200, body}, at, results_max));
  }
  // The answer that is there; "none" before it, "unknown" without the request.
  std::string found(const std::string& id, int64_t since = 0, const std::string& tenant = "t") {
    const auto row = database->find(id, tenant, since);
    EXPECT_TRUE(row);
    return !*row ? "unknown" : (*row)->answer ? (*row)->answer->body : "none";
  }

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("pdjob-async-" + std::to_string(getpid()));
  const std::string file = folder / "requests.db";
  std::unique_ptr<AsyncDatabase> database;
};

TEST_F(AsyncDatabaseTest, KeepsRequestsAndTheirAnswersWhenItIsOpenedAgain) {
  open();
  insert("a");
  insert("b");
  insert("c");
  answer("b", "answer");
  open();
  const auto waiting = database->all_unanswered();
  ASSERT_TRUE(waiting);
  ASSERT_EQ(waiting->size(), 2U);
  EXPECT_EQ((*waiting)[0].id, "a");
  EXPECT_EQ((*waiting)[0].tenant, "t");
  EXPECT_EQ((*waiting)[1].id, "c");
  EXPECT_EQ(found("b"), "answer");
  EXPECT_EQ(found("a"), "none");
  const auto row = database->unanswered("a");
  ASSERT_TRUE(row && *row);
  EXPECT_EQ((*row)->body, R"({"of":"a"})");
  EXPECT_EQ((*row)->path, "/p");
  EXPECT_FALSE(*database->unanswered("b"));
}

TEST_F(AsyncDatabaseTest, TakesTheFirstAnswerOnly) {
  open();
  insert("a");
  answer("a", "first");
  answer("a", "second");
  EXPECT_EQ(found("a"), "first");
  answer("never asked", "x");
  EXPECT_EQ(found("never asked"), "unknown");
  EXPECT_FALSE(database->insert({.id = "a"})) << "an id is there once";
}

TEST_F(AsyncDatabaseTest, ShowsATenantItsOwn) {
  open();
  insert("a", "t");
  EXPECT_EQ(found("a", 0, "u"), "unknown");
  EXPECT_FALSE(*database->erase("a", "u"));
  EXPECT_TRUE(*database->erase("a", "t"));
  EXPECT_FALSE(*database->erase("a", "t"));
  EXPECT_EQ(found("a"), "unknown");
}

TEST_F(AsyncDatabaseTest, ForgetsOldAnswersAndNoRequests) {
  open();
  insert("a");
  insert("b");
  answer("a", "answer", 10);
  EXPECT_EQ(found("a", 9), "answer");
  EXPECT_EQ(found("a", 10), "unknown");
  ASSERT_TRUE(database->erase_ended_before(9));
  EXPECT_EQ(found("a"), "answer");
  ASSERT_TRUE(database->erase_ended_before(10));
  EXPECT_EQ(found("a"), "unknown");
  EXPECT_EQ(found("b"), "none");
}

TEST_F(AsyncDatabaseTest, HasABoundOfAnswers) {
  open();
  for (const char* id : {"a", "b", "c"}) {
    insert(id);
  }
  insert("waits");
  answer("b", "1", 10, 2);
  answer("a", "2", 11, 2);
  answer("c", "3", 11, 2);
  EXPECT_EQ(found("b"), "unknown");
  EXPECT_EQ(found("a"), "2");
  EXPECT_EQ(found("c"), "3");
  EXPECT_EQ(found("waits"), "none");
}

TEST_F(AsyncDatabaseTest, IsReadByItsOwnerOnly) {
  using std::filesystem::perms;
  open();
  insert("a");
  for (const std::string& of : {file, file + "-wal"}) {
    EXPECT_EQ(std::filesystem::status(of).permissions(), perms::owner_read | perms::owner_write)
        << of;
  }
}

TEST_F(AsyncDatabaseTest, IsOfOneProcessAtATime) {
  open();
  const auto second = AsyncDatabase::open(file);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("locked"), std::string::npos) << second.error().message;
  EXPECT_FALSE(AsyncDatabase::open("/no/such/folder/requests.db"));
}

}  // namespace
}  // namespace pdjob::router
