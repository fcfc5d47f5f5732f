// SpareRoom: what other requests leave to those in the background. Beside others, a step takes so
// much of the background's work that it gets longer by a small part. Without others it takes more,
// but stays short while others may come at any moment: they wait for the end of this step. How long
// steps take follows from those so far: a + b x tokens. Value.
#pragma once

#include <cstdint>

#include "common/time.h"
#include "common/two_windows.h"

namespace pdjob::worker {

class SpareRoom {
 public:
  // Others have come so lately that more are expected.
  static constexpr Duration kLately = std::chrono::seconds(30);
  // One token in so many steps is taken even if there is no room for it. So the background goes
  // on, and a cost that has become smaller is noticed.
  static constexpr uint32_t kProbeEvery = 64;
  // Without others, a step may take so many times as long as the shortest one.
  static constexpr double kAloneFactor = 4;

  // `slowdown`: the part by which a step may get longer. `sequences`: of the engine.
  SpareRoom(double slowdown, uint32_t sequences) : slowdown_(slowdown), sequences_(sequences) {}

  // A request that is not in the background is here.
  void note_other(Instant now) { last_other_ = now; }
  bool expects_others(Instant now) const {
    return last_other_ != Instant{} && now - last_other_ < kLately;
  }
  // Sequences that the background leaves free. None if that left it none.
  uint32_t reserve(Instant now) const;

  // How many tokens of the background's a step takes beside so many others.
  uint32_t beside(uint32_t tokens);
  // How many it generates in a step without others, while others are expected.
  uint32_t alone() const;

  void step_begins(uint32_t tokens, Instant now);
  // Does nothing if none has begun.
  void step_ends(Instant now);

 private:
  double slowdown_;
  uint32_t sequences_;
  Instant last_other_{};
  // The time of a step, by its tokens. The line remembers long: while others decode, all steps have
  // about as many tokens.
  FadingLine seconds_{{.fade = 0.998, .slope_part = 0.005}};
  uint32_t steps_ = 0;       // Among them.
  uint32_t full_steps_ = 0;  // Since the last one that had room.
  uint32_t running_ = 0;     // Tokens of the step that runs.
  Instant began_{};
};

}  // namespace pdjob::worker
