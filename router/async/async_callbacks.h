// AsyncCallbacks decides which clients are called back now, and which later. Each receiver listed
// in the job file has its own limit of concurrent calls, so a receiver that hangs delays only its
// own calls. A failed call is retried after a wait that doubles.
//
//   answered --> [waits] --> [called] --> delivered
//                   ^            |
//                   +-- not taken+--> failed: so many attempts were made
//
// This class knows only the calls. The store keeps their content and makes them survive the router.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "router/config/async_config.h"

namespace pdjob::router {

class AsyncCallbacks {
 public:
  struct Call {
    uint64_t number = 0;  // Identifies the callback of one request, for all of its attempts.
    std::string id;
  };
  enum class Outcome { kDelivered, kAgain, kFailed };
  struct Ended {
    Outcome outcome = Outcome::kFailed;
    uint32_t attempts = 0;  // So far.
    Duration wait{};        // kAgain: until the next attempt.
  };

  // Beyond `calls_max` waiting calls of one tenant, the oldest is dropped: the store has deleted
  // its answer.
  AsyncCallbacks(const CallbackConfig& config, size_t calls_max, uint64_t seed);

  // `receiver`: index into config.allowed. `attempts`: made by earlier routers.
  void add(std::string id, const std::string& tenant, size_t receiver, uint32_t attempts,
           Instant due);
  // Returns the next call that is due and whose receiver has room. The call then counts as running.
  std::optional<Call> start_next(Instant now);
  // Records the result of an attempt. Requires: start_next() returned this number.
  Ended end(uint64_t number, bool taken, Instant now);
  // Drops a call without an attempt, because its request is unknown. Same requirement.
  void forget(uint64_t number);

  // When start_next() has a call, if no running call ends before then.
  Instant next_due() const;
  size_t waiting() const { return calls_.size() - running_; }
  size_t running() const { return running_; }

 private:
  struct State {
    std::string id;
    std::string tenant;
    size_t receiver = 0;
    uint32_t attempts = 0;
    Instant due{};
    bool running = false;
  };
  struct Receiver {
    std::set<std::pair<Instant, uint64_t>> waiting;  // By due time.
    size_t running = 0;
  };

  void drop_oldest_waiting(const std::string& tenant);
  void wait(uint64_t number, const State& call);
  void wait_no_longer(uint64_t number, const State& call);
  Duration wait_after(uint32_t attempts);

  const CallbackConfig config_;
  const size_t calls_max_;
  Random random_;
  std::map<uint64_t, State> calls_;        // In the order in which they were added.
  std::map<std::string, size_t> waiting_;  // By tenant; never zero.
  std::vector<Receiver> receivers_;
  size_t running_ = 0;
  uint64_t added_ = 0;
};

}  // namespace pdjob::router
