// The networks of a simulated job: which hosts are cut off from each other, and how long messages
// take.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "common/random.h"
#include "launcher/simulator/sim_loop.h"

namespace pdjob::simulation {

// Which hosts cannot reach each other now, and until when. What is sent meanwhile arrives later.
class SimCuts {
 public:
  // One direction.
  void cut(const std::string& from, const std::string& to, Instant until) {
    Instant& end = until_[{from, to}];
    end = std::max(end, until);
  }
  // Returns when the last of what was sent before arrives.
  Instant heal() {
    Instant last{};
    for (const auto& [hosts, until] : std::exchange(until_, {})) {
      last = std::max(last, until);
    }
    return last;
  }
  // What is sent now can arrive from then on.
  Instant passes(const std::string& from, const std::string& to, Instant now) const {
    const auto found = until_.find({from, to});
    return found == until_.end() ? now : std::max(now, found->second);
  }

 private:
  std::map<std::pair<std::string, std::string>, Instant> until_;
};

// One direction of one connection. Messages arrive in the order in which they were sent.
struct SimChannel {
  Instant last_arrival{};
};

// The latency of messages. Messages of different connections may overtake each other.
class SimNetwork {
 public:
  SimNetwork(SimLoop& loop, uint64_t seed) : loop_(loop), random_(seed) {
    slowest_ = std::chrono::microseconds(100 + random_.below(3000));
  }

  // Returns when a message sent now arrives at another process.
  Instant arrival(SimChannel& channel) { return in_order(channel, slowest_); }
  // Returns when a message sent now arrives at another thread of this process.
  Instant hand_over(SimChannel& channel) {
    return in_order(channel, std::chrono::microseconds(20));
  }
  Duration delay() { return Duration(1 + random_.below(static_cast<uint64_t>(slowest_.count()))); }

 private:
  Instant in_order(SimChannel& channel, Duration slowest) {
    const Duration delay(1 + random_.below(static_cast<uint64_t>(slowest.count())));
    channel.last_arrival = std::max(channel.last_arrival, loop_.now() + delay);
    return channel.last_arrival;
  }

  SimLoop& loop_;
  Random random_;
  Duration slowest_;
};

}  // namespace pdjob::simulation
