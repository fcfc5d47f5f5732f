#include "common/sqlite/database.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <sqlite3.h>

namespace pdjob {
namespace {

Error error_of(sqlite3* handle) {
  const int code = sqlite3_errcode(handle);
  return {code == SQLITE_FULL                               ? ErrorCode::kOverloaded
          : code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? ErrorCode::kCorrupt
                                                            : ErrorCode::kUnavailable,
          sqlite3_errmsg(handle)};
}

// FULL: a commit waits until the disk has it.
constexpr const char* kSafety =
    "PRAGMA locking_mode = EXCLUSIVE;"
    "PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL;";

// Only for a new file. SQLite gives the files beside it the same permissions.
void hide_from_others(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::file_size(file, ignored) == 0) {
    using std::filesystem::perms;
    std::filesystem::permissions(file, perms::owner_read | perms::owner_write, ignored);
  }
}

}  // namespace

Statement::Statement(sqlite3* database, const char* sql)
    : database_(database),
      result_(sqlite3_prepare_v3(database, sql, -1, SQLITE_PREPARE_PERSISTENT, &handle_, nullptr)) {
}

Statement::~Statement() { sqlite3_finalize(handle_); }

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      handle_(std::exchange(other.handle_, nullptr)),
      result_(other.result_),
      bound_(other.bound_) {}

Statement& Statement::bind(std::string_view text) {
  const int bound =
      sqlite3_bind_text64(handle_, ++bound_, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  result_ = result_ == SQLITE_OK ? bound : result_;
  return *this;
}

Statement& Statement::bind(int64_t number) {
  const int bound = sqlite3_bind_int64(handle_, ++bound_, number);
  result_ = result_ == SQLITE_OK ? bound : result_;
  return *this;
}

Statement& Statement::bind_null() {
  const int bound = sqlite3_bind_null(handle_, ++bound_);
  result_ = result_ == SQLITE_OK ? bound : result_;
  return *this;
}

Result<bool> Statement::step() {
  if (result_ == SQLITE_OK) {
    const int stepped = sqlite3_step(handle_);
    if (stepped == SQLITE_ROW || stepped == SQLITE_DONE) {
      return stepped == SQLITE_ROW;
    }
  }
  return error_of(database_);
}

Status Statement::finish() {
  const Result<bool> stepped = step();
  reset();
  return stepped ? ok() : Status(stepped.error());
}

void Statement::reset() {
  sqlite3_reset(handle_);
  bound_ = 0;
}

int64_t Statement::number(int column) const { return sqlite3_column_int64(handle_, column); }
bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}
std::string Statement::text(int column) const {
  const auto* const begin = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  return begin == nullptr
             ? std::string()
             : std::string(begin, static_cast<size_t>(sqlite3_column_bytes(handle_, column)));
}

Result<std::unique_ptr<Database>> Database::open(const std::string& file,
                                                 std::span<const char* const> layout) {
  sqlite3* handle = nullptr;
  const int opened =
      sqlite3_open_v2(file.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  Status done = opened == SQLITE_OK ? ok() : Status(error_of(handle));
  if (done) {
    hide_from_others(file);
    done = database->set_up(layout);
  }
  if (!done) {
    return Error{done.error().code, file + ": " + done.error().message};
  }
  return database;
}

Status Database::set_up(std::span<const char* const> layout) {
  PDJOB_TRY_STATUS(run(kSafety));
  // The writes of a killed process may be in the page cache only, and a power cut would take them
  // back. They are synced before anybody acts on them, for example by removing a file.
  PDJOB_TRY_STATUS(run("PRAGMA wal_checkpoint(TRUNCATE)"));
  PDJOB_TRY(const int64_t had, number("PRAGMA user_version"));
  if (had < 0 || static_cast<uint64_t>(had) > layout.size()) {
    return Error{ErrorCode::kUnsupported,
                 "its layout is version " + std::to_string(had) + ", of a later pdjob: " +
                     std::to_string(layout.size()) + " is the last one known here"};
  }
  for (auto version = static_cast<size_t>(had); version < layout.size(); ++version) {
    const Status upgraded = run_whole([&]() -> Status {
      PDJOB_TRY_STATUS(run(layout[version]));
      return run(("PRAGMA user_version = " + std::to_string(version + 1)).c_str());
    });
    if (!upgraded) {
      return upgraded.error();
    }
  }
  return ok();
}

Database::~Database() { sqlite3_close(handle_); }

Status Database::run(const char* sql) {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return error_of(handle_);
  }
  return ok();
}

Status Database::run_whole(const std::function<Status()>& work) {
  PDJOB_TRY_STATUS(run("BEGIN"));
  Status done = work();
  if (done) {
    done = run("COMMIT");
  }
  if (!done) {
    [[maybe_unused]] const Status undone = run("ROLLBACK");
  }
  return done;
}

Result<int64_t> Database::number(const char* sql) {
  Statement statement = prepare(sql);
  PDJOB_TRY([[maybe_unused]] const bool row, statement.step());
  return statement.number(0);
}

int64_t Database::changes() const { return sqlite3_changes64(handle_); }
int64_t Database::last_row_id() const { return sqlite3_last_insert_rowid(handle_); }

}  // namespace pdjob
