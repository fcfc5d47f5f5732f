#include "router/async/async_database.h"

#include <utility>

#include "common/files/own_files.h"

namespace pdjob::router {
namespace {

// IF NOT EXISTS: files of the first layout that were made before versions existed have version 0.
constexpr const char* kLayout[] = {
    "CREATE TABLE IF NOT EXISTS requests ("
    "  arrival INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, tenant TEXT NOT NULL,"
    "  path TEXT NOT NULL, body TEXT NOT NULL, created_at INTEGER NOT NULL,"
    "  ended_at INTEGER, status INTEGER, answer TEXT);"
    "CREATE INDEX IF NOT EXISTS ended ON requests (ended_at) WHERE ended_at IS NOT NULL;",
    // A separate table: rows of requests are long, and callbacks are scanned.
    "CREATE TABLE callbacks ("
    "  arrival INTEGER PRIMARY KEY, url TEXT NOT NULL, status INTEGER NOT NULL DEFAULT 0,"
    "  attempts INTEGER NOT NULL DEFAULT 0, due_at INTEGER NOT NULL DEFAULT 0);"
    "CREATE TRIGGER forget_callback AFTER DELETE ON requests"
    "  BEGIN DELETE FROM callbacks WHERE arrival = OLD.arrival; END;",
    ("CREATE INDEX ended_of_tenant ON requests (tenant, ended_at) WHERE ended_at IS NOT NULL;"),
};

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

Result<std::unique_ptr<AsyncDatabase>> AsyncDatabase::open(const std::string& file) {
  PDJOB_TRY_STATUS(make_own_file(file));
  PDJOB_TRY(auto database, Database::open(file, kLayout));
  return std::unique_ptr<AsyncDatabase>(new AsyncDatabase(std::move(database)));
}

Status AsyncDatabase::insert(const AsyncRow& row) {
  return database_->run_whole([&]() -> Status {
    PDJOB_TRY_STATUS(database_
                         ->prepare("INSERT INTO requests (id, tenant, path, body, created_at) "
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
    return database_->prepare("INSERT INTO callbacks (arrival, url) VALUES (?, ?)")
        .bind(database_->last_row_id())
        .bind(row.callback)
        .finish();
  });
}

Status AsyncDatabase::answer(const std::string& id, const AsyncAnswer& answer, int64_t ended_at,
                             uint32_t results_max) {
  PDJOB_TRY_STATUS(
      database_
          ->prepare("UPDATE requests SET status = ?, answer = ?, ended_at = ?, body = '' "
                    "WHERE id = ? AND ended_at IS NULL")
          .bind(answer.status)
          .bind(answer.body)
          .bind(ended_at)
          .bind(id)
          .finish());
  return database_
      ->prepare(
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
  Statement statement = database_->prepare(
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
  Statement statement = database_->prepare(
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
  return database_
      ->prepare(
          "UPDATE callbacks SET status = ?, attempts = ?, due_at = ? "
          "WHERE arrival = (SELECT arrival FROM requests WHERE id = ?)")
      .bind(static_cast<int64_t>(status))
      .bind(attempts)
      .bind(due_at)
      .bind(id)
      .finish();
}

Result<std::optional<AsyncRow>> AsyncDatabase::unanswered(const std::string& id) {
  Statement statement = database_->prepare(
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
  Statement statement =
      database_->prepare("SELECT id, tenant FROM requests WHERE ended_at IS NULL ORDER BY arrival");
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
  PDJOB_TRY_STATUS(database_->prepare("DELETE FROM requests WHERE id = ? AND tenant = ?")
                       .bind(id)
                       .bind(tenant)
                       .finish());
  return database_->changes() > 0;
}

Status AsyncDatabase::erase_ended_before(int64_t ended_since) {
  return database_->prepare("DELETE FROM requests WHERE ended_at <= ?").bind(ended_since).finish();
}

}  // namespace pdjob::router
