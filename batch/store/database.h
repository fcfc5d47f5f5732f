// Database: SQLite behind Result, with statements that are prepared once and run many times. This
// folder's only door to SQLite. One process has a file at a time. Calls block. Any thread may
// call, but only one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace pdjob::batch {

class Statement {
 public:
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;

  // The next parameter of this run. A text must live until the statement has run.
  Statement& bind(std::string_view text);
  Statement& bind(int64_t number);
  Statement& bind_null();

  // Returns true if there is a row, false after the last one.
  Result<bool> step();
  // One run without rows. The statement can then be bound anew.
  Status finish();
  void reset();

  int64_t number(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  bool is_null(int column) const;

 private:
  friend class Database;
  Statement(sqlite3* database, const char* sql);

  sqlite3* database_;
  sqlite3_stmt* handle_ = nullptr;
  int result_;
  int bound_ = 0;
};

class Database {
 public:
  // Makes the file if it is not there. `set_up` is SQL.
  static Result<std::unique_ptr<Database>> open(const std::string& file, const char* set_up);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // The statement must not outlive the database. An error comes from its first step.
  Statement prepare(const char* sql) { return {handle_, sql}; }
  Status run(const char* sql);
  // Runs `work` in one transaction: all of its changes reach the file, or none.
  Status run_whole(const std::function<Status()>& work);
  // The first value of the first row.
  Result<int64_t> number(const char* sql);

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}

  sqlite3* const handle_;
};

}  // namespace pdjob::batch
