// LoadWords: a load that is said in words: the rate of requests, and the lengths of their prompts
// and outputs. Values and Pure.
//
//   rate     20            requests per second
//            5..40@10min   a ramp that lasts 10 minutes
//            5@50s,50@10s  phases, which repeat: a burst in each minute
//   length   3000          tokens
//            100..500      uniform between the two
//            3000~0.5      lognormal: the mean, and the standard deviation of the logarithm
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/random.h"
#include "common/result.h"
#include "common/time.h"
#include "launcher/played/request_trace.h"

namespace pdjob::simulation {

// The bounds of a load, whether it is said or read.
inline constexpr size_t kLoadRequestsMax = 1'000'000;
inline constexpr uint32_t kLoadTokensMax = 1'000'000;  // Of a prompt or an output.
inline constexpr uint64_t kLoadTokensInAllMax = 4'000'000'000;
inline constexpr double kLoadRateMax = 100'000;

struct LengthWords {
  enum class Kind : uint8_t { kConstant, kUniform, kLognormal };
  Kind kind = Kind::kConstant;
  uint32_t tokens = 1;   // The length, the shortest one, or the mean.
  uint32_t longest = 1;  // Of kUniform.
  double spread = 0;     // Of kLognormal.

  // 1 to kLoadTokensMax.
  uint32_t draw(Random& random) const;
};

struct RatePhase {
  double from = 0, to = 0;           // Requests per second, at the beginning and at the end.
  Duration lasts = Duration::max();  // max(): the only phase, for ever.
};

enum class Arrivals : uint8_t {
  kPoisson,  // At random, independent of each other.
  kEven,     // At equal distances.
};

struct LoadWords {
  std::vector<RatePhase> rate;
  Arrivals arrivals = Arrivals::kPoisson;
  LengthWords prompt;
  LengthWords output;
  Duration duration{};  // No request comes later.
  size_t requests = SIZE_MAX;
};

// kInvalidArgument: says what is wrong, and what is right. `option` stands in the message.
Result<LengthWords> parse_length(const std::string& option, const std::string& text);
Result<std::vector<RatePhase>> parse_rate(const std::string& option, const std::string& text);
// "250ms", "90s", "10min", "1.5h".
Result<Duration> parse_time(const std::string& option, const std::string& text);

// kInvalidArgument: no request comes, or more than one of the bounds above allows. Equal seeds give
// equal loads. No two prompts begin alike.
Result<RequestTrace> make_load(const LoadWords& words, uint64_t seed);

}  // namespace pdjob::simulation
