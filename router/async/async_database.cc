#include "router/async/async_database.h"

#include <filesystem>
#include <iterator>
#include <system_error>

#include <sqlite3.h>

namespace pdjob::router {
namespace {

// FULL: a request that was answered with 202 survives a power cut, too.
constexpr const char* kSetUp =
    "PRAGMA locking_mode = EXCLUSIVE;"
    "PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL;";

// Each step upgrades the layout of a file by one version. A new file has version 0. So do files of
// the first layout that were made before versions existed.
constexpr const char* kSteps[] = {
    "CREATE TABLE IF NOT EXISTS requests ("
    "  arrival INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, tenant TEXT NOT NULL,"
    "  path TEXT NOT NULL, body TEXT NOT NULL, created_at INTEGER NOT NULL,"
    "  ended_at INTEGER, status INTEGER, answer TEXT);"
    "CREATE INDEX IF NOT EXISTS ended ON requests (ended_at) WHERE ended_at IS NOT NULL;"
    "PRAGMA user_version = 1;",
    // A separate table: rows of requests are long, and callbacks are scanned.
    "CREATE TABLE callbacks ("
    "  arrival INTEGER PRIMARY KEY, url TEXT NOT NULL, status INTEGER NOT NULL DEFAULT 0,"
    "  attempts INTEGER NOT NULL DEFAULT 0, due_at INTEGER NOT NULL DEFAULT 0);"
    "CREATE TRIGGER forget_callback AFTER DELETE ON requests"
    "  BEGIN DELETE FROM callbacks WHERE arrival = OLD.arrival; END;"
    "PRAGMA user_version = 2;",
    ("CREATE INDEX ended_of_tenant ON requests (tenant, ended_at) WHERE ended_at IS NOT NULL;"
     "PRAGMA user_version = 3;"),
};
constexpr auto kVersion = static_cast<int64_t>(std::size(kSteps));

}  // namespace

const char* to_string(CallbackStatus status) {
  switch (status) {
    case CallbackStatus::kPending:
      return "pending";
    case CallbackStatus::kDelivered:
      return "delivered";
    case CallbackStatus::kFailed:
      return "failed";
  }
  return "unknown";
}

// One statement, bound and stepped.
class AsyncDatabase::Statement {
 public:
  Statement(AsyncDatabase& database, const char* sql) : database_(database) {
    result_ = sqlite3_prepare_v2(database.handle_, sql, -1, &handle_, nullptr);
  }
  ~Statement() { sqlite3_finalize(handle_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // `text` must live until the statement has run.
  Statement& bind(std::string_view text) {
    return bound(sqlite3_bind_text64(handle_, ++bound_, text.data(), text.size(), SQLITE_STATIC,
                                     SQLITE_UTF8));
  }
  Statement& bind(int64_t number) { return bound(sqlite3_bind_int64(handle_, ++bound_, number)); }

  // Returns true if there is a row, false after the last one.
  Result<bool> step() {
    if (result_ == SQLITE_OK) {
      const int stepped = sqlite3_step(handle_);
      if (stepped == SQLITE_ROW || stepped == SQLITE_DONE) {
        return stepped == SQLITE_ROW;
      }
    }
    return database_.error();
  }
  Status finish() {
    PDJOB_TRY([[maybe_unused]] const bool row, step());
    return ok();
  }

  std::string text(int column) const {
    const auto* const begin = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
    return begin == nullptr
               ? std::string()
               : std::string(begin, static_cast<size_t>(sqlite3_column_bytes(handle_, column)));
  }
  int64_t number(int column) const { return sqlite3_column_int64(handle_, column); }
  bool is_null(int column) const { return sqlite3_column_type(handle_, column) == SQLITE_NULL; }

 private:
  Statement& bound(int result) {
    result_ = result_ == SQLITE_OK ? result : result_;
    return *this;
  }

  AsyncDatabase& database_;
  sqlite3_stmt* handle_ = nullptr;
  int result_ = SQLITE_OK;
  int bound_ = 0;
};

Result<std::unique_ptr<AsyncDatabase>> AsyncDatabase::open(const std::string& file) {
  sqlite3* handle = nullptr;
  const int opened =
      sqlite3_open_v2(file.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  std::unique_ptr<AsyncDatabase> database(new AsyncDatabase(handle));
  if (opened != SQLITE_OK) {
    return Error{ErrorCode::kUnavailable, file + ": " + database->error().message};
  }
  // Only for a new file. SQLite gives the files beside it the same permissions.
  std::error_code ignored;
  if (std::filesystem::file_size(file, ignored) == 0) {
    using std::filesystem::perms;
    std::filesystem::permissions(file, perms::owner_read | perms::owner_write, ignored);
  }
  Status set_up = database->run(kSetUp);
  if (set_up) {
    set_up = database->bring_up_to_date();
  }
  if (!set_up) {
    return Error{ErrorCode::kUnavailable, file + ": " + set_up.error().message};
  }
  return database;
}

Status AsyncDatabase::bring_up_to_date() {
  int64_t version = 0;
  {
    Statement statement(*this, "PRAGMA user_version");
    PDJOB_TRY_STATUS(statement.finish());
    version = statement.number(0);
  }
  if (version < 0 || version > kVersion) {
    return Error{ErrorCode::kUnsupported, "its layout is version " + std::to_string(version) +
                                              ", of a later pdjob: " + std::to_string(kVersion) +
                                              " is the last one known here"};
  }
  for (; version < kVersion; ++version) {
    PDJOB_TRY_STATUS(run_whole([&] { return run(kSteps[version]); }));
  }
  return ok();
}

AsyncDatabase::~AsyncDatabase() { sqlite3_close(handle_); }

Error AsyncDatabase::error() const { return {ErrorCode::kUnavailable, sqlite3_errmsg(handle_)}; }

Status AsyncDatabase::run(const char* sql) {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return error();
  }
  return ok();
}

Status AsyncDatabase::run_whole(const std::function<Status()>& work) {
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

Status AsyncDatabase::insert(const AsyncRow& row) {
  return run_whole([&]() -> Status {
    PDJOB_TRY_STATUS(Statement(*this,
                               "INSERT INTO requests (id, tenant, path, body, created_at) "
                               "VALUES (?, ?, ?, ?, ?)")
                         .bind(row.id)
                         .bind(row.tenant)
                         .bind(row.path)
                         .bind(row.body)
                         .bind(row.created_at)
                         .finish());
    if (row.callback.empty()) {
      return ok();
    }
    return Statement(*this, "INSERT INTO callbacks (arrival, url) VALUES (?, ?)")
        .bind(sqlite3_last_insert_rowid(handle_))
        .bind(row.callback)
        .finish();
  });
}

Status AsyncDatabase::answer(const std::string& id, const AsyncAnswer& answer, int64_t ended_at,
                             uint32_t results_max) {
  PDJOB_TRY_STATUS(Statement(*this,
                             "UPDATE requests SET status = ?, answer = ?, ended_at = ?, body = '' "
                             "WHERE id = ? AND ended_at IS NULL")
                       .bind(answer.status)
                       .bind(answer.body)
                       .bind(ended_at)
                       .bind(id)
                       .finish());
  return Statement(*this,
                   "DELETE FROM requests WHERE arrival IN (SELECT arrival FROM requests "
                   "WHERE tenant = (SELECT tenant FROM requests WHERE id = ?) "
                   "AND ended_at IS NOT NULL ORDER BY ended_at DESC, arrival DESC "
                   "LIMIT -1 OFFSET ?)")
      .bind(id)
      .bind(results_max)
      .finish();
}

Result<std::optional<AsyncFound>> AsyncDatabase::find(const std::string& id,
                                                      const std::optional<std::string>& tenant,
                                                      int64_t ended_since) {
  Statement statement(*this,
                      "SELECT r.created_at, r.ended_at, r.status, r.answer, c.url, c.status, "
                      "c.attempts FROM requests r LEFT JOIN callbacks c ON c.arrival = r.arrival "
                      "WHERE r.id = ? AND (r.ended_at IS NULL OR r.ended_at > ?) "
                      "AND r.tenant = coalesce(?, r.tenant)");
  statement.bind(id).bind(ended_since);
  if (tenant) {
    statement.bind(*tenant);
  }
  PDJOB_TRY(const bool there, statement.step());
  if (!there) {
    return std::optional<AsyncFound>();
  }
  AsyncFound found{.created_at = statement.number(0)};
  if (!statement.is_null(1)) {
    found.answer = {.status = static_cast<int>(statement.number(2)), .body = statement.text(3)};
  }
  if (!statement.is_null(4)) {
    found.callback = {.url = statement.text(4),
                      .status = static_cast<CallbackStatus>(statement.number(5)),
                      .attempts = static_cast<uint32_t>(statement.number(6))};
  }
  return std::optional(std::move(found));
}

Result<std::vector<PendingCallback>> AsyncDatabase::pending_callbacks() {
  Statement statement(*this,
                      "SELECT r.id, c.url, c.attempts, c.due_at, r.tenant FROM callbacks c "
                      "JOIN requests r ON r.arrival = c.arrival "
                      "WHERE c.status = ? AND r.ended_at IS NOT NULL ORDER BY c.arrival");
  statement.bind(static_cast<int64_t>(CallbackStatus::kPending));
  std::vector<PendingCallback> callbacks;
  while (true) {
    PDJOB_TRY(const bool there, statement.step());
    if (!there) {
      return callbacks;
    }
    callbacks.push_back({.id = statement.text(0),
                         .url = statement.text(1),
                         .attempts = static_cast<uint32_t>(statement.number(2)),
                         .due_at = statement.number(3),
                         .tenant = statement.text(4)});
  }
}

Status AsyncDatabase::note_callback(const std::string& id, CallbackStatus status, uint32_t attempts,
                                    int64_t due_at) {
  return Statement(*this,
                   "UPDATE callbacks SET status = ?, attempts = ?, due_at = ? "
                   "WHERE arrival = (SELECT arrival FROM requests WHERE id = ?)")
      .bind(static_cast<int64_t>(status))
      .bind(attempts)
      .bind(due_at)
      .bind(id)
      .finish();
}

Result<std::optional<AsyncRow>> AsyncDatabase::unanswered(const std::string& id) {
  Statement statement(*this,
                      "SELECT r.tenant, r.path, r.body, c.url FROM requests r "
                      "LEFT JOIN callbacks c ON c.arrival = r.arrival "
                      "WHERE r.id = ? AND r.ended_at IS NULL");
  PDJOB_TRY(const bool there, statement.bind(id).step());
  if (!there) {
    return std::optional<AsyncRow>();
  }
  return std::optional(AsyncRow{.id = id,
                                .tenant = statement.text(0),
                                .path = statement.text(1),
                                .body = statement.text(2),
                                .callback = statement.text(3)});
}

Result<std::vector<AsyncRow>> AsyncDatabase::all_unanswered() {
  Statement statement(*this,
                      "SELECT id, tenant FROM requests WHERE ended_at IS NULL ORDER BY arrival");
  std::vector<AsyncRow> rows;
  while (true) {
    PDJOB_TRY(const bool there, statement.step());
    if (!there) {
      return rows;
    }
    rows.push_back({.id = statement.text(0), .tenant = statement.text(1)});
  }
}

Result<bool> AsyncDatabase::erase(const std::string& id, const std::string& tenant) {
  PDJOB_TRY_STATUS(Statement(*this, "DELETE FROM requests WHERE id = ? AND tenant = ?")
                       .bind(id)
                       .bind(tenant)
                       .finish());
  return sqlite3_changes(handle_) > 0;
}

Status AsyncDatabase::erase_ended_before(int64_t ended_since) {
  return Statement(*this, "DELETE FROM requests WHERE ended_at <= ?").bind(ended_since).finish();
}

}  // namespace pdjob::router
