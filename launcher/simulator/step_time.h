// StepTime: how long a step of an engine takes. A sequence with one token in a step decodes; one
// with more tokens computes a prompt. Value.
#pragma once

#include <chrono>
#include <cstdint>

#include "common/time.h"

namespace pdjob::simulation {

struct StepTime {
  // The time of one row on a large GPU is a fraction of a nanosecond.
  using Time = std::chrono::duration<double, std::nano>;

  Time fixed = std::chrono::microseconds(500);  // Of each step.
  Time per_prompt_token = std::chrono::microseconds(50);
  Time per_sequence = std::chrono::microseconds(50);  // That decodes.
  Time per_prompt_read{};   // A prompt's token reads one row of the tokens up to it.
  Time per_context_read{};  // The same of a sequence that decodes.

  Duration begin() const { return std::chrono::round<Duration>(fixed); }

  // What one sequence adds, with so many rows before the step and so many tokens in it.
  // Requires: tokens > 0.
  Duration of(uint32_t rows, uint32_t tokens) const {
    const double count = tokens;
    const double reads = rows * count + count * (count + 1) / 2;
    return std::chrono::round<Duration>(tokens == 1
                                            ? per_sequence + reads * per_context_read
                                            : tokens * per_prompt_token + reads * per_prompt_read);
  }

  friend bool operator==(const StepTime&, const StepTime&) = default;
};

}  // namespace pdjob::simulation
