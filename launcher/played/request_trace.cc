#include "launcher/played/request_trace.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "common/random.h"

namespace pdjob::simulation {

Duration arrival_step(const RequestTrace& trace) {
  int64_t step = 0;
  bool shared = false;
  for (size_t i = 1; i < trace.size(); ++i) {
    const int64_t distance = (trace[i].at - trace[i - 1].at).count();
    shared = shared || distance == 0;
    step = std::gcd(step, distance);
  }
  constexpr Duration kShortest = std::chrono::milliseconds(100);
  return shared && Duration(step) >= kShortest ? Duration(step) : Duration::zero();
}

void spread_arrivals(RequestTrace& trace, Duration step, uint64_t seed) {
  Random random(seed);
  for (size_t begin = 0; begin < trace.size();) {
    size_t end = begin;
    while (end < trace.size() && trace[end].at == trace[begin].at) {
      ++end;
    }
    const Duration room =
        end < trace.size() ? std::min(step, trace[end].at - trace[begin].at) : step;
    for (; begin < end; ++begin) {
      trace[begin].at += Duration(random.below(static_cast<uint64_t>(room.count())));
    }
  }
  std::ranges::stable_sort(trace, {}, &TraceRequest::at);
}

TraceRequest scaled(const TraceRequest& request, const TraceScale& scale) {
  const auto divided = [](uint32_t tokens, uint32_t divisor) {
    return std::max((tokens + divisor / 2) / divisor, 1U);
  };
  TraceRequest result = request;
  result.at = std::chrono::duration_cast<Duration>(request.at / scale.rate);
  result.prompt_tokens = divided(request.prompt_tokens, scale.prompt_divisor);
  result.output_tokens = divided(request.output_tokens, scale.output_divisor);
  return result;
}

std::vector<Token> prompt_of(const TraceRequest& request, const TraceScale& scale) {
  PDJOB_CHECK(!request.blocks.empty());
  std::vector<Token> tokens;
  tokens.reserve(request.prompt_tokens);
  for (uint64_t position = 0; position < request.prompt_tokens; ++position) {
    // Rounding may leave a token behind the last block.
    const size_t block = std::min<size_t>(position * scale.prompt_divisor / kTraceBlockTokens,
                                          request.blocks.size() - 1);
    const uint64_t letter = mix(mix(request.blocks[block]) ^ position) % 26;
    tokens.push_back(static_cast<Token>('a' + letter));
  }
  return tokens;
}

}  // namespace pdjob::simulation
