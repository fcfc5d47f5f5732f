// SimEngine: an engine in a simulated process. Its steps take virtual time (step_time.h).
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "engine/engine.h"
#include "launcher/simulator/step_time.h"

namespace pdjob::simulation {

class SimEngine : public engine::Engine {
 public:
  explicit SimEngine(const StepTime& step_time) : step_time_(step_time) {}

  // The virtual time that steps have taken since the last call.
  Duration take_time() { return std::exchange(time_, Duration::zero()); }
  // The beginning of a step that never ends; kNever: there is none.
  virtual Instant hangs_since() const { return kNever; }

 protected:
  // What a step of these items takes.
  Duration time_of(std::span<const engine::StepItem> items) const {
    Duration time = step_time_.begin();
    for (const engine::StepItem& item : items) {
      time += step_time_.of(length(item.sequence), static_cast<uint32_t>(item.tokens.size()));
    }
    return time;
  }
  void spend(Duration time) { time_ += time; }

 private:
  const StepTime step_time_;
  Duration time_{};
};

}  // namespace pdjob::simulation
