// RowClient: sends one attempt of a row to whatever serves it. HttpRowClient is the real one.
// Loop-bound.
#pragma once

#include <functional>
#include <string>

#include "batch/core/ledger.h"
#include "common/time.h"

namespace pdjob::batch {

// How an attempt ended.
struct RowResult {
  Outcome outcome = Outcome::kBroken;
  int status = 0;  // 0: there was no reply.
  std::string body;
  std::string request_id;
  Duration retry_after{};
  std::string cause;    // Of a failure, one word: "timeout", "500".
  std::string message;  // For people.
};

class RowClient {
 public:
  using Then = std::function<void(AttemptId, RowResult)>;

  struct Attempt {
    AttemptId id;
    std::string target;      // "/v1/completions".
    std::string request_id;  // Sent along.
    std::string body;
  };

  virtual ~RowClient() = default;
  // Calls `then` once, after it has returned; not after cancel().
  virtual void start(Attempt attempt, const Then& then) = 0;
  virtual void cancel(AttemptId attempt) = 0;
  // How many workers serve, if the server tells; 0: it does not.
  virtual void count_workers(std::function<void(size_t)> then) = 0;
};

}  // namespace pdjob::batch
