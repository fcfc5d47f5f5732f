// AsyncRequests decides which asynchronous requests run now, and when to look again. It limits how
// many run at once, takes tenants in turn, and serves one tenant in order of arrival. The queue
// limits how many exist. Only the store knows requests that have ended.
//
// With several tenants, none may hold more of the queue than is free, so a later tenant still finds
// room (dynamic thresholds: Choudhury and Hahne, 1998).
//
//   submitted --> [stored?] --> [queued] --> [running] --> ended
//                     |             |  ^         |  |
//                     |             |  +- held --+  |
//                     +--- failed   +- cancelled ---+
//
// A request that starts is first read from the store. A request whose model has no workers now is
// held, and other requests pass it. A draining router starts none: what it leaves, the next router
// runs. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/time.h"
#include "router/config/async_config.h"

namespace pdjob::router {

class AsyncRequests {
 public:
  enum class State { kStoring, kQueued, kRunning };
  // The conditions that requests wait for, besides their turn.
  struct Outside {
    bool usable = true;       // Some worker could get a request now.
    bool store_full = false;  // The disk is slow: finished requests are stored first.
    // Returns false if the model exists, but no worker serves it now.
    std::function<bool(const std::string& model)> serves;
  };
  // A started request, as read from the store.
  struct Stored {
    bool valid = true;  // Its tenant and its body are.
    std::string model;
  };
  enum class Verdict {
    kRun,
    kRefuse,  // It cannot run. It counts as running until end().
    kHeld,    // No worker serves its model: it is held.
    kDropped,
  };
  // After this time, requests that wait for the outside are tried again.
  static constexpr Duration kPatience = std::chrono::milliseconds(100);

  explicit AsyncRequests(const AsyncConfig& config, bool several_tenants = false)
      : config_(config), several_tenants_(several_tenants) {}

  // Counts a request that is being stored. Returns false if there is no room.
  bool submit(const std::string& id, const std::string& tenant, const Outside& outside);
  // Queues a stored request. An earlier router may have stored it, with a longer queue.
  void enqueue(const std::string& id, const std::string& tenant);
  // Returns the next request to read and run, if one may run, and marks it running. Held requests
  // come first, once their model is served.
  std::optional<std::string> start_next(const Outside& outside);
  // Decides what becomes of a request from start_next(). `stored` is empty if it could not be read.
  Verdict decide(const std::string& id, const std::optional<Stored>& stored,
                 const Outside& outside);
  // When to try start_next() again although no request has come or ended; kNever: not at all.
  Instant next_try(const Outside& outside, Instant now) const;
  // Starts no more requests, and takes no new ones. Those that run may end.
  void drain() { draining_ = true; }
  // Removes a request that has ended, was cancelled, or could not be stored. Ignores unknown ids.
  void end(const std::string& id);

  // Empty: unknown, or another tenant's.
  std::optional<State> state(const std::string& id, const std::string& tenant) const;
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
  void hold(const std::string& id, Request& request, const std::string& model);
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
  bool draining_ = false;
};

}  // namespace pdjob::router
