// AsyncRequests: which of the requests that nobody waits for run now. So many at once, of each
// tenant in turn, and of one in order of arrival; no more in all than the queue holds. What has
// ended is known to the store alone.
//
// Where there are several tenants, none may have more of the queue than it leaves free (dynamic
// thresholds: Choudhury and Hahne, 1998): whoever comes later finds room.
//
//   submitted --> [stored?] --> [queued] --> [running] --> ended
//                     |             |  ^         |  |
//                     |             |  +- held --+  |
//                     +--- failed   +- cancelled ---+
//
// Of a model that nobody serves just now they are held, and hold up no others. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "router/async_config.h"

namespace pdjob::router {

class AsyncRequests {
 public:
  enum class State { kStoring, kQueued, kRunning };

  explicit AsyncRequests(const AsyncConfig& config, bool several_tenants = false)
      : config_(config), several_tenants_(several_tenants) {}

  // It is being stored. False: there is no room.
  bool submit(const std::string& id, const std::string& tenant);
  // It is stored, now or by an earlier router, whose queue may have been longer.
  void enqueue(const std::string& id, const std::string& tenant);
  // The next one to run, if there is one and it may: it runs now. What is held of a model comes
  // first, once `served` says that somebody serves it.
  std::optional<std::string> start_next(
      const std::function<bool(const std::string& model)>& served);
  // It runs too early: nobody serves its model.
  void hold(const std::string& id, const std::string& model);
  bool holds_some() const { return !held_.empty(); }
  // It has ended, could not be stored, or was cancelled; unknown: nothing happens.
  void end(const std::string& id);

  // Nothing: unknown, or another tenant's.
  std::optional<State> state(const std::string& id, const std::string& tenant) const;
  // Of one that has not ended.
  const std::string* tenant_of(const std::string& id) const;
  size_t alive() const { return requests_.size(); }
  size_t queued() const;  // Of those that are not held.
  size_t running() const { return running_; }

 private:
  struct Request {
    std::string tenant;
    State state = State::kStoring;
    uint64_t arrival = 0;             // From kQueued on.
    std::optional<std::string> held;  // For want of workers of this model.
  };

  using Queue = std::map<uint64_t, std::string>;  // By arrival.

  struct Tenant {
    size_t alive = 0;
    uint64_t served = 0;  // Ascends with every one that runs.
    Queue queue;
  };

  // Requires: it is not empty. What was its first one runs now.
  std::string start_first(const Queue& queue);
  void add(const std::string& id, Request request);
  // Also of what is held: no queue holds it any more.
  void unqueue(const Request& request);

  const AsyncConfig config_;
  const bool several_tenants_;
  std::map<std::string, Request> requests_;
  std::map<std::string, Tenant> tenants_;  // With a request that has not ended, and others.
  std::map<std::string, Queue> held_;      // By model; none is empty.
  uint64_t arrivals_ = 0;
  uint64_t starts_ = 0;
  size_t running_ = 0;
};

}  // namespace pdjob::router
