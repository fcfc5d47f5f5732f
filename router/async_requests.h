// AsyncRequests: which of the requests that nobody waits for run now. In order of arrival, so many
// at once, and no more in all than the queue holds. What has ended is known to the store alone.
//
//   submitted --> [stored?] --> [queued] --> [running] --> ended
//                     |             |            |
//                     +--- failed   +- cancelled-+
//
// Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "router/async_config.h"

namespace pdjob::router {

class AsyncRequests {
 public:
  enum class State { kStoring, kQueued, kRunning };

  explicit AsyncRequests(const AsyncConfig& config) : config_(config) {}

  // It is being stored. False: there is no room.
  bool submit(const std::string& id, const std::string& tenant);
  // It is stored, now or by an earlier router, whose queue may have been longer.
  void enqueue(const std::string& id, const std::string& tenant);
  // The next one to run, if there is one and it may: it runs now.
  std::optional<std::string> start_next();
  // It has ended, could not be stored, or was cancelled; unknown: nothing happens.
  void end(const std::string& id);

  // Nothing: unknown, or another tenant's.
  std::optional<State> state(const std::string& id, const std::string& tenant) const;
  // Of one that has not ended.
  const std::string* tenant_of(const std::string& id) const;
  size_t alive() const { return requests_.size(); }
  size_t running() const { return running_; }

 private:
  struct Request {
    std::string tenant;
    State state = State::kStoring;
  };

  const AsyncConfig config_;
  std::map<std::string, Request> requests_;
  std::deque<std::string> queue_;  // May hold some that were cancelled.
  size_t running_ = 0;
};

}  // namespace pdjob::router
