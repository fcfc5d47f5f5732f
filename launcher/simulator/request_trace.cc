#include "launcher/simulator/request_trace.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "common/check.h"
#include "common/random.h"

namespace pdjob::simulation {

Result<RequestTrace> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Error{ErrorCode::kInvalidArgument, "cannot read " + path};
  }
  RequestTrace trace;
  std::string line;
  try {
    while (std::getline(file, line)) {
      const auto request = nlohmann::json::parse(line);
      trace.push_back({.at = std::chrono::milliseconds(request.at("timestamp").get<uint32_t>()),
                       .prompt_tokens = request.at("input_length").get<uint32_t>(),
                       .output_tokens = request.at("output_length").get<uint32_t>(),
                       .blocks = request.at("hash_ids").get<std::vector<uint64_t>>()});
      const TraceRequest& last = trace.back();
      if (last.prompt_tokens == 0 ||
          last.blocks.size() !=
              (uint64_t{last.prompt_tokens} + kTraceBlockTokens - 1) / kTraceBlockTokens) {
        return Error{ErrorCode::kInvalidArgument,
                     path + ":" + std::to_string(trace.size()) +
                         ": hash_ids must have one id for each 512 tokens of input_length"};
      }
    }
  } catch (const std::exception& error) {
    return Error{ErrorCode::kInvalidArgument,
                 path + ":" + std::to_string(trace.size() + 1) + ": " + error.what()};
  }
  std::ranges::stable_sort(trace, {}, &TraceRequest::at);
  return trace;
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
