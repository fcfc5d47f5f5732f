#include "launcher/played/load_words.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>

namespace pdjob::simulation {
namespace {

Error wrong(const std::string& option, const std::string& text, const std::string& wanted) {
  constexpr size_t kShown = 80;
  return {ErrorCode::kInvalidArgument,
          option + ": expected " + wanted + ", got \"" + text.substr(0, kShown) + '"'};
}

std::optional<double> said_number(std::string_view text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size() ||
      !std::isfinite(value) || value < 0) {
    return {};
  }
  return value;
}

std::optional<uint32_t> said_tokens(std::string_view text) {
  const auto value = said_number(text);
  if (!value || *value < 1 || *value > kLoadTokensMax || *value != std::floor(*value)) {
    return {};
  }
  return static_cast<uint32_t>(*value);
}

std::optional<Duration> said_time(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1e-3}, {"min", 60}, {"h", 3600}, {"s", 1}};
  constexpr double kLongest = 366.0 * 86400;
  for (const auto& [unit, factor] : kUnits) {
    if (!text.ends_with(unit)) {
      continue;
    }
    const auto value = said_number(text.substr(0, text.size() - unit.size()));
    if (!value || *value * factor > kLongest) {
      return {};
    }
    return std::chrono::round<Duration>(std::chrono::duration<double>(*value * factor));
  }
  return {};
}

double normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return radius * std::cos(2 * std::numbers::pi * random.unit());
}

std::optional<RatePhase> phase_of(std::string_view text) {
  RatePhase phase;
  const size_t at = text.find('@');
  if (at != std::string_view::npos) {
    const auto lasts = said_time(text.substr(at + 1));
    if (!lasts || *lasts <= Duration::zero()) {
      return {};
    }
    phase.lasts = *lasts;
    text = text.substr(0, at);
  }
  const size_t dots = text.find("..");
  const auto from = said_number(text.substr(0, dots));
  const auto to = dots == std::string_view::npos ? from : said_number(text.substr(dots + 2));
  const bool ramp = dots != std::string_view::npos;
  if (!from || !to || std::max(*from, *to) > kLoadRateMax ||
      (ramp && phase.lasts == Duration::max())) {
    return {};
  }
  phase.from = *from;
  phase.to = *to;
  return phase;
}

// How many requests a phase brings until `time` after its beginning.
double brought(const RatePhase& phase, double time) {
  const double slope = phase.from == phase.to ? 0 : (phase.to - phase.from) / seconds(phase.lasts);
  return time * (phase.from + slope * time / 2);
}

// When a phase has brought so many. Requires: it does.
double time_of_arrival(const RatePhase& phase, double requests) {
  const double slope = phase.from == phase.to ? 0 : (phase.to - phase.from) / seconds(phase.lasts);
  if (std::abs(slope) < 1e-12) {
    return requests / phase.from;
  }
  const double root = std::sqrt(std::max(phase.from * phase.from + 2 * slope * requests, 0.0));
  // The form that loses no digits where the slope is small.
  return 2 * requests / (phase.from + root);
}

}  // namespace

uint32_t LengthWords::draw(Random& random) const {
  if (kind == Kind::kConstant) {
    return tokens;
  }
  if (kind == Kind::kUniform) {
    return tokens + static_cast<uint32_t>(random.below(uint64_t{longest} - tokens + 1));
  }
  const double drawn = tokens * std::exp(spread * normal(random) - spread * spread / 2);
  return static_cast<uint32_t>(
      std::clamp(std::round(drawn), 1.0, static_cast<double>(kLoadTokensMax)));
}

Result<LengthWords> parse_length(const std::string& option, const std::string& text) {
  const auto refused = [&] {
    return wrong(option, text,
                 "tokens from 1 to " + std::to_string(kLoadTokensMax) +
                     ": 3000, or 100..500, or 3000~0.5 (mean and spread, at most 3)");
  };
  LengthWords words;
  const std::string_view all = text;
  const size_t dots = all.find("..");
  const size_t tilde = all.find('~');
  const auto first = said_tokens(all.substr(0, std::min(dots, tilde)));
  if (!first) {
    return refused();
  }
  words.tokens = words.longest = *first;
  if (dots != std::string_view::npos) {
    const auto longest = said_tokens(all.substr(dots + 2));
    if (!longest || *longest < *first) {
      return refused();
    }
    words.kind = LengthWords::Kind::kUniform;
    words.longest = *longest;
  } else if (tilde != std::string_view::npos) {
    constexpr double kSpreadMax = 3;
    const auto spread = said_number(all.substr(tilde + 1));
    if (!spread || *spread > kSpreadMax) {
      return refused();
    }
    words.kind = LengthWords::Kind::kLognormal;
    words.spread = *spread;
  }
  return words;
}

Result<std::vector<RatePhase>> parse_rate(const std::string& option, const std::string& text) {
  constexpr size_t kPhasesMax = 100;
  std::vector<RatePhase> phases;
  std::string_view rest = text;
  bool more = true;
  while (more && phases.size() < kPhasesMax) {
    const size_t comma = rest.find(',');
    const auto phase = phase_of(rest.substr(0, comma));
    more = comma != std::string_view::npos;
    if (!phase || (phase->lasts == Duration::max() && (more || !phases.empty()))) {
      more = true;
      break;
    }
    phases.push_back(*phase);
    rest = more ? rest.substr(comma + 1) : "";
  }
  const bool comes = std::ranges::any_of(
      phases, [](const RatePhase& phase) { return std::max(phase.from, phase.to) > 0; });
  if (more || !comes) {
    return wrong(option, text,
                 "requests per second: 20, or a ramp 5..40@10min, or at most " +
                     std::to_string(kPhasesMax) + " phases 5@50s,50@10s");
  }
  return phases;
}

Result<Duration> parse_time(const std::string& option, const std::string& text) {
  const auto time = said_time(text);
  if (!time || *time <= Duration::zero()) {
    return wrong(option, text, "a time such as 250ms, 90s, 10min or 1.5h, at most 366 days");
  }
  return *time;
}

Result<RequestTrace> make_load(const LoadWords& words, uint64_t seed) {
  const auto error = [](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what};
  };
  const auto too_many = [&] {
    return error("the load has more than " + std::to_string(kLoadRequestsMax) +
                 " requests: give a shorter --duration or fewer --requests");
  };
  // Far beyond the bound nothing needs to be drawn.
  const RatePhase& first = words.rate.front();
  if (words.requests > kLoadRequestsMax && first.lasts == Duration::max() &&
      first.from * seconds(words.duration) > 2.0 * kLoadRequestsMax) {
    return too_many();
  }
  Random random(mix(seed ^ 0x10ad));
  RequestTrace load;
  uint64_t tokens = 0;
  double phase_begins = 0;
  size_t turn = 0;
  double left_over = 0;  // Of the distance to the next request, in requests.
  const double end = seconds(words.duration);
  const auto distance = [&] {
    return words.arrivals == Arrivals::kEven ? 1.0 : -std::log(1 - random.unit());
  };
  double next = distance();
  while (load.size() < std::min(words.requests, kLoadRequestsMax + 1) && phase_begins < end) {
    const RatePhase& phase = words.rate[turn % words.rate.size()];
    const double lasts = phase.lasts == Duration::max() ? end : seconds(phase.lasts);
    const double in_phase = brought(phase, lasts);
    if (left_over + next > in_phase) {
      next -= in_phase - left_over;
      left_over = 0;
      phase_begins += lasts;
      ++turn;
      continue;
    }
    left_over += next;
    next = distance();
    const double at = phase_begins + time_of_arrival(phase, left_over);
    if (at >= end) {
      break;
    }
    TraceRequest request{.at = std::chrono::round<Duration>(std::chrono::duration<double>(at)),
                         .prompt_tokens = words.prompt.draw(random),
                         .output_tokens = words.output.draw(random),
                         .blocks = {mix(seed) ^ load.size()}};
    tokens += uint64_t{request.prompt_tokens} + request.output_tokens;
    if (tokens > kLoadTokensInAllMax) {
      return error("the load has more than " + std::to_string(kLoadTokensInAllMax) +
                   " tokens: give a shorter --duration or fewer --requests");
    }
    load.push_back(std::move(request));
  }
  if (load.empty()) {
    return error(
        "no request comes within the duration: give a higher --rate or a longer "
        "--duration");
  }
  if (load.size() > kLoadRequestsMax) {
    return too_many();
  }
  return load;
}

}  // namespace pdjob::simulation
