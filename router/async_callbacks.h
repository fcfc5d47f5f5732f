// AsyncCallbacks: which clients are called back now, and which later. Each receiver that the job
// file lists has its own room: one that hangs keeps nobody waiting but those who want to be called
// there. A call that fails is made again, after a wait that doubles.
//
//   answered --> [waits] --> [called] --> delivered
//                   ^            |
//                   +-- not taken+--> failed: so many attempts were made
//
// Only calls are known here; what is said, and that they survive the router, is the store's. Pure.
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
#include "router/async_config.h"

namespace pdjob::router {

class AsyncCallbacks {
 public:
  struct Call {
    uint64_t number = 0;  // Of one request's call, for all of its attempts.
    std::string id;
  };
  enum class Outcome { kDelivered, kAgain, kFailed };
  struct Ended {
    Outcome outcome = Outcome::kFailed;
    uint32_t attempts = 0;  // So far.
    Duration wait{};        // kAgain: until the next one.
  };

  // Beyond `calls_max` calls that wait for one tenant, the oldest of them is forgotten: the store
  // has dropped its answer.
  AsyncCallbacks(const CallbackConfig& config, size_t calls_max, uint64_t seed);

  // `receiver`: its place in config.allowed. `attempts`: made by earlier routers.
  void add(std::string id, const std::string& tenant, size_t receiver, uint32_t attempts,
           Instant due);
  // The next one that is due where there is room, if there is one: it is being made now.
  std::optional<Call> start_next(Instant now);
  // How it went. Requires: start_next() gave it.
  Ended end(uint64_t number, bool taken, Instant now);
  // It is not made: nobody knows its request any more. Requires the same.
  void forget(uint64_t number);

  // When start_next() has something, if nothing ends until then.
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
    std::set<std::pair<Instant, uint64_t>> waiting;  // By when they are due.
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
  std::map<std::string, size_t> waiting_;  // By tenant; none is zero.
  std::vector<Receiver> receivers_;
  size_t running_ = 0;
  uint64_t added_ = 0;
};

}  // namespace pdjob::router
