// A recorded load: when requests came, how long their prompts and answers were, and which prompts
// begin alike. Files have the format of Mooncake's traces, one JSON object in a line:
//
//   {"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, ...]}
//
// timestamp: milliseconds. hash_ids: one for each 512 tokens of the prompt. Equal ids at the
// beginning of two prompts mean equal tokens. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/generation.h"
#include "common/result.h"
#include "common/time.h"

namespace pdjob::simulation {

inline constexpr uint32_t kTraceBlockTokens = 512;

struct TraceRequest {
  Duration at{};  // From the beginning of the trace.
  uint32_t prompt_tokens = 1;
  uint32_t output_tokens = 1;
  std::vector<uint64_t> blocks;  // The ids.
};
using RequestTrace = std::vector<TraceRequest>;  // By `at`.

// How a trace is made fit for a job.
struct TraceScale {
  double rate = 1;              // Requests come so many times as fast.
  uint32_t prompt_divisor = 1;  // Prompts are shorter by this factor, and so are their blocks.
  uint32_t output_divisor = 1;
};

// kInvalidArgument: the file cannot be read, or a line is not of this format.
Result<RequestTrace> read_trace(const std::string& path);

// Moves requests apart that have the same timestamp: each gets a random time before the next
// timestamp, which is at most `step` later. A trace whose timestamps come in steps has bursts that
// its service never saw.
void spread_arrivals(RequestTrace& trace, Duration step, uint64_t seed);

// At least one token of prompt and of output stays.
TraceRequest scaled(const TraceRequest& request, const TraceScale& scale);

// The tokens of a scaled request's prompt, which are letters. Requires: the request has a block for
// each kTraceBlockTokens / prompt_divisor of its tokens.
std::vector<Token> prompt_of(const TraceRequest& request, const TraceScale& scale);

}  // namespace pdjob::simulation
