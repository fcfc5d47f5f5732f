#include "router/async/async_database.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <sqlite3.h>
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
  void insert(const std::string& id, const std::string& tenant = "t",
              const std::string& callback = "") {
    ASSERT_TRUE(database->insert({.id = id,
                                  .tenant = tenant,
                                  .path = "/p",
                                  .body = "{\"of\":\"" + id + "\"}",
                                  .created_at = 5,
                                  .callback = callback}));
  }
  void answer(const std::string& id, const std::string& body, int64_t at = 10,
              uint32_t results_max = 100) {
    ASSERT_TRUE(database->answer(id, {200, body}, at, results_max));
  }
  // Returns the stored answer, "none" before there is one, or "unknown" without the request.
  std::string found(const std::string& id, int64_t since = 0, const std::string& tenant = "t") {
    const auto row = database->find(id, tenant, since);
    EXPECT_TRUE(row);
    return !*row ? "unknown" : (*row)->answer ? (*row)->answer->body : "none";
  }

  // Runs statements on the file, through a connection of its own. Returns the number of rows.
  int sql(const char* statements) {
    sqlite3* handle = nullptr;
    EXPECT_EQ(sqlite3_open(file.c_str(), &handle), SQLITE_OK);
    int rows = 0;
    const auto count = [](void* into, int, char**, char**) {
      return ++*static_cast<int*>(into), 0;
    };
    EXPECT_EQ(sqlite3_exec(handle, statements, count, &rows, nullptr), SQLITE_OK);
    sqlite3_close(handle);
    return rows;
  }
  // Returns "url status attempts"; empty without a callback.
  std::string callback(const std::string& id) {
    const auto row = database->find(id, std::nullopt, 0);
    EXPECT_TRUE(row && *row) << id;
    const auto& callback = (*row)->callback;
    return callback ? callback->url + ' ' + to_string(callback->status) + ' ' +
                          std::to_string(callback->attempts)
                    : "";
  }
  // Returns "id attempts due_at, ...".
  std::string pending() {
    const auto callbacks = database->pending_callbacks();
    EXPECT_TRUE(callbacks);
    std::string text;
    for (const PendingCallback& callback : *callbacks) {
      text += callback.id + ' ' + std::to_string(callback.attempts) + ' ' +
              std::to_string(callback.due_at) + ", ";
    }
    return text;
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

TEST_F(AsyncDatabaseTest, AnswersOfOneTenantPushOutNoneOfAnother) {
  open();
  insert("hers", "alice");
  answer("hers", "alice's", 1, 2);
  for (const char* id : {"a", "b", "c", "d"}) {
    insert(id, "mallory");
    answer(id, "of mallory", 10, 2);
  }
  EXPECT_EQ(found("hers", 0, "alice"), "alice's");
  EXPECT_EQ(found("b", 0, "mallory"), "unknown");
  EXPECT_EQ(found("c", 0, "mallory"), "of mallory");
}

TEST_F(AsyncDatabaseTest, KnowsWhoIsToBeCalled) {
  open();
  insert("a", "t", "http://a/");
  insert("b");
  insert("c", "t", "http://c/");
  insert("d", "t", "http://d/");
  EXPECT_EQ((*database->unanswered("a"))->callback, "http://a/");
  EXPECT_EQ((*database->unanswered("b"))->callback, "");
  EXPECT_EQ(callback("a"), "http://a/ pending 0");
  EXPECT_EQ(callback("b"), "");
  EXPECT_EQ(pending(), "") << "none has an answer yet";
  for (const char* id : {"c", "b", "a"}) {
    answer(id, "answer");
  }
  EXPECT_EQ(pending(), "a 0 0, c 0 0, ");
  ASSERT_TRUE(database->note_callback("a", CallbackStatus::kPending, 2, 77));
  ASSERT_TRUE(database->note_callback("c", CallbackStatus::kDelivered, 1, 0));
  open();
  EXPECT_EQ(pending(), "a 2 77, ");
  EXPECT_EQ(callback("a"), "http://a/ pending 2");
  EXPECT_EQ(callback("c"), "http://c/ delivered 1");
  ASSERT_TRUE(database->note_callback("a", CallbackStatus::kFailed, 3, 0));
  EXPECT_EQ(pending(), "");
  EXPECT_EQ(callback("a"), "http://a/ failed 3");
}

TEST_F(AsyncDatabaseTest, ForgetsACallbackWithItsRequest) {
  open();
  for (const char* id : {"erased", "old", "kept"}) {
    insert(id, "t", "http://a/");
  }
  answer("erased", "answer", 20);
  answer("old", "answer", 10);
  answer("kept", "answer", 20);
  EXPECT_TRUE(*database->erase("erased", "t"));
  ASSERT_TRUE(database->erase_ended_before(10));
  ASSERT_TRUE(database->note_callback("erased", CallbackStatus::kPending, 1, 5));
  EXPECT_EQ(pending(), "kept 0 0, ");
  database.reset();
  EXPECT_EQ(sql("SELECT * FROM callbacks"), 1);
}

TEST_F(AsyncDatabaseTest, TakesOverAFileOfThePreviousVersion) {
  std::filesystem::create_directories(folder);
  sql("PRAGMA journal_mode = WAL; CREATE TABLE requests ("
      "  arrival INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, tenant TEXT NOT NULL,"
      "  path TEXT NOT NULL, body TEXT NOT NULL, created_at INTEGER NOT NULL,"
      "  ended_at INTEGER, status INTEGER, answer TEXT);"
      "CREATE INDEX ended ON requests (ended_at) WHERE ended_at IS NOT NULL;"
      "INSERT INTO requests (id, tenant, path, body, created_at) VALUES ('a', 't', '/p', '{}', 5);"
      "INSERT INTO requests (id, tenant, path, body, created_at, ended_at, status, answer)"
      "  VALUES ('b', 't', '/p', '', 5, 10, 200, 'answer');");
  for (int turn = 0; turn < 2; ++turn) {
    open();
    EXPECT_EQ(found("a"), "none");
    EXPECT_EQ(found("b"), "answer");
    EXPECT_EQ(callback("b"), "");
    EXPECT_EQ(database->all_unanswered()->size(), 1U);
  }
  insert("c", "t", "http://c/");
  answer("c", "answer");
  EXPECT_EQ(pending(), "c 0 0, ");
}

}  // namespace
}  // namespace pdjob::router
