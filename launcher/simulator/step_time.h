// StepTime: how long a step of a simulated engine takes. A sequence with one token in a step
// decodes; one with more tokens computes a prompt. Value.
#pragma once

#include <cstdint>

#include "common/time.h"

namespace pdjob::simulation {

struct StepTime {
  Duration fixed = std::chrono::microseconds(500);  // Of each step.
  Duration per_prompt_token = std::chrono::microseconds(50);
  Duration per_sequence = std::chrono::microseconds(50);  // That decodes.
  Duration per_prompt_read{};   // A prompt's token reads one row of the tokens up to it.
  Duration per_context_read{};  // The same of a sequence that decodes.

  // What one sequence adds, with so many rows before the step and so many tokens in it.
  // Requires: tokens > 0.
  Duration of(uint32_t rows, uint32_t tokens) const {
    const int64_t reads = int64_t{rows} * tokens + int64_t{tokens} * (tokens + 1) / 2;
    return tokens == 1 ? per_sequence + reads * per_context_read
                       : int64_t{tokens} * per_prompt_token + reads * per_prompt_read;
  }
};

}  // namespace pdjob::simulation
