#include "worker/batching/spare_room.h"

#include <algorithm>
#include <cmath>

namespace pdjob::worker {
namespace {

constexpr uint32_t kReservePart = 8;  // One sequence in so many.
// A step that took so many times as long as expected waited for something else. So once as many
// steps as this are known; an engine that has become slower is still followed.
constexpr double kOutlier = 2;
constexpr uint32_t kStepsNeeded = 20;

uint32_t whole(double tokens) {
  return static_cast<uint32_t>(std::clamp(std::floor(tokens), 0.0, 1e6));
}

}  // namespace

uint32_t SpareRoom::reserve(Instant now) const {
  if (!expects_others(now) || sequences_ == 1) {
    return 0;
  }
  return std::max(1U, sequences_ / kReservePart);
}

uint32_t SpareRoom::beside(uint32_t tokens) {
  const double each = seconds_.b();
  const double step = seconds_.a() + each * tokens;
  const uint32_t room = each > 0 ? whole(slowdown_ * step / each) : 0;
  full_steps_ = room > 0 ? 0 : full_steps_ + 1;
  if (full_steps_ < kProbeEvery) {
    return room;
  }
  full_steps_ = 0;
  return 1;
}

// The shortest step has one token.
uint32_t SpareRoom::alone() const {
  const double each = seconds_.b();
  const double fixed = seconds_.a();
  return each > 0 ? std::max(1U, whole((kAloneFactor * (fixed + each) - fixed) / each)) : 1;
}

void SpareRoom::step_begins(uint32_t tokens, Instant now) {
  running_ = tokens;
  began_ = now;
}

void SpareRoom::step_ends(Instant now) {
  if (running_ > 0) {
    const std::chrono::duration<double> took = now - began_;
    const double expected = seconds_.a() + seconds_.b() * running_;
    const bool known = ++steps_ > kStepsNeeded;
    seconds_.add(running_, known ? std::min(took.count(), kOutlier * expected) : took.count());
  }
  running_ = 0;
}

}  // namespace pdjob::worker
