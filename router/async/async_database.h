// AsyncDatabase: the SQLite file of asynchronous requests and their answers. One process has a file
// at a time. Calls block. Any thread may call, but only one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/sqlite/database.h"

namespace pdjob::router {

struct AsyncRow {
  std::string id;
  std::string tenant;  // Its name; empty: the job has no tenants.
  std::string path;
  std::string body;
  int64_t created_at = 0;  // Seconds since 1970.
  std::string callback;    // The client's callback URL; empty: none.
};
struct AsyncAnswer {
  int status = 0;
  std::string body;
};
// Files store these numbers.
enum class CallbackStatus { kPending = 0, kDelivered = 1, kFailed = 2 };
const char* to_string(CallbackStatus status);

struct AsyncCallback {
  std::string url;
  CallbackStatus status = CallbackStatus::kPending;
  uint32_t attempts = 0;  // Ended attempts.
};
struct AsyncFound {
  int64_t created_at = 0;
  std::optional<AsyncAnswer> answer;  // Empty: it has not ended.
  std::optional<AsyncCallback> callback;
};
// The callback of an answered request, not delivered yet.
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

  Status insert(const AsyncRow& row);
  // Keeps only the first answer of a request. Deletes the tenant's oldest answers beyond
  // `results_max`.
  Status answer(const std::string& id, const AsyncAnswer& answer, int64_t ended_at,
                uint32_t results_max);
  // Finds a request of this tenant, or of any. Requests that ended at `ended_since` or before are
  // skipped.
  Result<std::optional<AsyncFound>> find(const std::string& id,
                                         const std::optional<std::string>& tenant,
                                         int64_t ended_since);
  // Returns all of them in order of arrival.
  Result<std::vector<PendingCallback>> pending_callbacks();
  // Stores the callback's state; `due_at` is the time of the next attempt.
  Status note_callback(const std::string& id, CallbackStatus status, uint32_t attempts,
                       int64_t due_at);
  // Returns the request with its body; empty if it is unknown or has ended.
  Result<std::optional<AsyncRow>> unanswered(const std::string& id);
  // Returns all of them in order of arrival, without their bodies.
  Result<std::vector<AsyncRow>> all_unanswered();
  // Returns true if the request existed.
  Result<bool> erase(const std::string& id, const std::string& tenant);
  Status erase_ended_before(int64_t ended_since);

 private:
  explicit AsyncDatabase(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  const std::unique_ptr<Database> database_;
};

}  // namespace pdjob::router
