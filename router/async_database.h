// AsyncDatabase: the SQLite file of requests that nobody waits for, and of their answers. The only
// door to SQLite. One process has a file at a time. Calls block; not bound to a thread, but for one
// at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

struct sqlite3;

namespace pdjob::router {

struct AsyncRow {
  std::string id;
  std::string tenant;  // Its name; empty: there are none.
  std::string path;
  std::string body;
  int64_t created_at = 0;  // Seconds since 1970.
  std::string callback;    // Where its client wants to be called; empty: nowhere.
};
struct AsyncAnswer {
  int status = 0;
  std::string body;
};
// The numbers stand in files.
enum class CallbackStatus { kPending = 0, kDelivered = 1, kFailed = 2 };
const char* to_string(CallbackStatus status);

struct AsyncCallback {
  std::string url;
  CallbackStatus status = CallbackStatus::kPending;
  uint32_t attempts = 0;  // That have ended.
};
struct AsyncFound {
  int64_t created_at = 0;
  std::optional<AsyncAnswer> answer;  // Nothing: it has not ended.
  std::optional<AsyncCallback> callback;
};
// Of a request that has an answer, whose client has not been called yet.
struct PendingCallback {
  std::string id;
  std::string url;
  uint32_t attempts = 0;
  int64_t due_at = 0;  // Seconds since 1970.
  std::string tenant;
};

class AsyncDatabase {
 public:
  static Result<std::unique_ptr<AsyncDatabase>> open(const std::string& file);
  ~AsyncDatabase();
  AsyncDatabase(const AsyncDatabase&) = delete;
  AsyncDatabase& operator=(const AsyncDatabase&) = delete;

  Status insert(const AsyncRow& row);
  // Only the first answer of a request counts. Drops the oldest answers of the same tenant beyond
  // `results_max`.
  Status answer(const std::string& id, const AsyncAnswer& answer, int64_t ended_at,
                uint32_t results_max);
  // Of this tenant, or of any, and not ended before `ended_since`.
  Result<std::optional<AsyncFound>> find(const std::string& id,
                                         const std::optional<std::string>& tenant,
                                         int64_t ended_since);
  // In order of arrival.
  Result<std::vector<PendingCallback>> pending_callbacks();
  // How it stands now; `due_at` is of the next attempt.
  Status note_callback(const std::string& id, CallbackStatus status, uint32_t attempts,
                       int64_t due_at);
  // With its body; nothing: unknown, or it has ended.
  Result<std::optional<AsyncRow>> unanswered(const std::string& id);
  // All, in order of arrival; without their bodies.
  Result<std::vector<AsyncRow>> all_unanswered();
  // True: it was there.
  Result<bool> erase(const std::string& id, const std::string& tenant);
  Status erase_ended_before(int64_t ended_since);

 private:
  class Statement;
  explicit AsyncDatabase(sqlite3* handle) : handle_(handle) {}
  Status run(const char* sql);
  // All of what `work` does is in the file, or nothing.
  Status run_whole(const std::function<Status()>& work);
  Status bring_up_to_date();
  Error error() const;

  sqlite3* const handle_;
};

}  // namespace pdjob::router
