// A load: when requests came, how long their prompts and answers were, and which prompts begin
// alike. Value.
#pragma once

#include <cstdint>
#include <vector>

#include "common/generation.h"
#include "common/time.h"

namespace pdjob::simulation {

inline constexpr uint32_t kTraceBlockTokens = 512;

struct TraceRequest {
  Duration at{};  // From the beginning of the trace.
  uint32_t prompt_tokens = 1;
  uint32_t output_tokens = 1;
  // An id for each 512 tokens of the prompt. Equal ids at the beginning of two prompts mean equal
  // tokens. The last one stands for all tokens behind it.
  std::vector<uint64_t> blocks;
};
using RequestTrace = std::vector<TraceRequest>;  // By `at`.

inline constexpr const char* kTraceModel = "m";  // That clients ask for.

// How a trace is made fit for a job.
struct TraceScale {
  double rate = 1;              // Requests come so many times as fast.
  uint32_t prompt_divisor = 1;  // Prompts are shorter by this factor, and so are their blocks.
  uint32_t output_divisor = 1;
};

// The step of the timestamps, if several requests share one and it is a tenth of a second or more;
// otherwise 0.
Duration arrival_step(const RequestTrace& trace);

// Moves requests apart that have the same timestamp: each gets a random time before the next
// timestamp, which is at most `step` later. A trace whose timestamps come in steps has bursts that
// its service never saw.
void spread_arrivals(RequestTrace& trace, Duration step, uint64_t seed);

// At least one token of prompt and of output stays.
TraceRequest scaled(const TraceRequest& request, const TraceScale& scale);

// The tokens of a scaled request's prompt, which are letters. Requires: the request has a block.
std::vector<Token> prompt_of(const TraceRequest& request, const TraceScale& scale);

}  // namespace pdjob::simulation
