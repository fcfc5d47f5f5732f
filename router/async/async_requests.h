// AsyncRequests decides which asynchronous requests run now. It limits how many run at once, takes
// tenants in turn, and serves one tenant in order of arrival. The queue limits how many exist. Only
// the store knows requests that have ended.
//
// With several tenants, none may hold more of the queue than is free, so a later tenant still finds
// room (dynamic thresholds: Choudhury and Hahne, 1998).
//
//   submitted --> [stored?] --> [queued] --> [running] --> ended
//                     |             |  ^         |  |
//                     |             |  +- held --+  |
//                     +--- failed   +- cancelled ---+
//
// A request whose model has no workers now is held, and other requests pass it. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "router/config/async_config.h"

namespace pdjob::router {

class AsyncRequests {
 public:
  enum class State { kStoring, kQueued, kRunning };

  explicit AsyncRequests(const AsyncConfig& config, bool several_tenants = false)
      : config_(config), several_tenants_(several_tenants) {}

  // Counts a request that is being stored. Returns false if there is no room.
  bool submit(const std::string& id, const std::string& tenant);
  // Queues a stored request. An earlier router may have stored it, with a longer queue.
  void enqueue(const std::string& id, const std::string& tenant);
  // Returns the next request to run, if one may run, and marks it running. Held requests come
  // first, once `served` returns true for their model.
  std::optional<std::string> start_next(
      const std::function<bool(const std::string& model)>& served);
  // Holds a running request that started too early: no worker serves its model.
  void hold(const std::string& id, const std::string& model);
  bool holds_some() const { return !held_.empty(); }
  // Removes a request that has ended, was cancelled, or could not be stored. Ignores unknown ids.
  void end(const std::string& id);

  // Empty: unknown, or another tenant's.
  std::optional<State> state(const std::string& id, const std::string& tenant) const;
  // Null unless the request is unfinished.
  const std::string* tenant_of(const std::string& id) const;
  size_t alive() const { return requests_.size(); }
  size_t queued() const;  // Without held requests.
  size_t running() const { return running_; }

 private:
  struct Request {
    std::string tenant;
    State state = State::kStoring;
    uint64_t arrival = 0;             // Set from kQueued on.
    std::optional<std::string> held;  // Its model, which has no workers now.
  };

  using Queue = std::map<uint64_t, std::string>;  // By arrival.

  struct Tenant {
    size_t alive = 0;
    uint64_t served = 0;  // start_first()'s count at the tenant's last start.
    Queue queue;
  };

  // Requires: `queue` is not empty. Marks its first request running.
  std::string start_first(const Queue& queue);
  void add(const std::string& id, Request request);
  // Removes the request from its queue, or from the held ones.
  void unqueue(const Request& request);

  const AsyncConfig config_;
  const bool several_tenants_;
  std::map<std::string, Request> requests_;
  std::map<std::string, Tenant> tenants_;  // Every tenant that has or had requests.
  std::map<std::string, Queue> held_;      // By model; never empty.
  uint64_t arrivals_ = 0;
  uint64_t starts_ = 0;
  size_t running_ = 0;
};

}  // namespace pdjob::router
