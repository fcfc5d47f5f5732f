// Database: SQLite behind Result, with statements that may run many times. One process has a file
// at a time. A commit survives a power cut. Calls block. Any thread may call, but only
// one at a time.
//
// Errors: kOverloaded if the disk is full, kCorrupt if the file is no database, or a broken one;
// else kUnavailable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace pdjob {

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
  // Opens the file, or makes one that only its owner can read. `layout` is SQL: its first step
  // makes the layout of version 1, and each further one upgrades a file by one version. A file says
  // how many steps it has had. kUnsupported: it has had more, of a later pdjob. What can be read
  // afterwards survives a power cut, even if the process that wrote it was killed.
  static Result<std::unique_ptr<Database>> open(const std::string& file,
                                                std::span<const char* const> layout);
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
  // How many rows the last statement that changes rows has changed.
  int64_t changes() const;
  int64_t last_row_id() const;

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  Status set_up(std::span<const char* const> layout);

  sqlite3* const handle_;
};

}  // namespace pdjob
