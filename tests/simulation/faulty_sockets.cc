#include "tests/simulation/faulty_sockets.h"

#include <cerrno>

namespace pdjob::simulation {

SimSockets::Wire FaultySockets::draw_wire(Random& random) {
  const Duration latency_max = std::chrono::microseconds(20 + random.below(1500));
  return {.latency_max = latency_max, .buffer_bytes = size_t{512} << random.below(6)};
}

bool FaultySockets::reset_one() {
  const auto chosen = choose(false);
  if (chosen) {
    fail(*chosen, ECONNRESET);
  }
  return chosen != nullptr;
}

bool FaultySockets::mute_one(Duration gives_up) {
  const auto chosen = choose(true);
  if (chosen) {
    mute(*chosen);
    loop().after(gives_up, [chosen] { fail(*chosen, ETIMEDOUT); });
  }
  return chosen != nullptr;
}

std::shared_ptr<SimSockets::Connection> FaultySockets::choose(bool of_network) {
  const auto candidates = alive(of_network);
  return candidates.empty() ? nullptr : candidates[random().below(candidates.size())];
}

Instant FaultySockets::leaves(const std::string& from, const std::string& to) const {
  return cuts_ != nullptr ? cuts_->passes(from, to, loop().now()) : loop().now();
}

}  // namespace pdjob::simulation
