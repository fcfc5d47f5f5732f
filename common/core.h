// The shape of a core: a state machine that takes one event at a time and answers with effects
// (ARCHITECTURE.md, "Core and shell").
//
//   void step(const Event& event, Instant now, std::vector<Effect>& effects);
//   Instant next_wakeup() const;  // When TimePassed is due; kNever: no timer is needed.
#pragma once

#include <utility>
#include <vector>

#include "common/time.h"

namespace pdjob {

// May come early.
struct TimePassed {};

// One step: when, and where its effects go.
template <class Effect>
struct Turn {
  Instant now;
  std::vector<Effect>& effects;
  void emit(Effect effect) { effects.push_back(std::move(effect)); }
};

}  // namespace pdjob
