#include "tests/simulation/workload.h"

#include "common/random.h"

namespace pdjob::simulation {
namespace {

Token prompt_token(uint64_t seed, uint32_t position) {
  return static_cast<Token>('a' + mix(seed ^ mix(position)) % 26);
}

void add_tenants(const WorkloadShape& shape, Random random, std::vector<Ask>& asks) {
  for (size_t i = 0; i < asks.size(); ++i) {
    Ask& ask = asks[i];
    if (i > 0 && random.chance(shape.repeats)) {
      const Ask& earlier = asks[random.below(i)];
      ask.model = earlier.model;
      ask.prompt = earlier.prompt;
      ask.max_tokens = earlier.max_tokens;
      ask.choices = earlier.choices;
      ask.seed = earlier.seed;
      ask.stream = earlier.stream;
    }
    ask.tenant = static_cast<uint32_t>(1 + random.below(shape.tenants));
    ask.asynchronous = random.chance(shape.asynchronous);
    ask.stream = ask.stream && !ask.asynchronous;
  }
}

}  // namespace

std::vector<Ask> make_workload(const WorkloadShape& shape, Instant start, uint64_t seed) {
  Random random(seed);
  Random families(mix(seed));
  std::vector<Ask> asks;
  for (uint32_t i = 1; i <= shape.asks; ++i) {
    Ask ask{.id = RequestId{i}, .model = shape.models[i % shape.models.size()]};
    ask.seed = random.next() >> 16;
    const auto tokens = static_cast<uint32_t>(1 + random.below(shape.prompt_tokens_max));
    ask.max_tokens = static_cast<uint32_t>(1 + random.below(shape.max_tokens_max));
    ask.choices =
        random.chance(0.7) ? 1 : static_cast<uint32_t>(1 + random.below(shape.choices_max));
    const uint64_t family = shape.families > 0 ? mix(seed + families.below(shape.families)) : 0;
    const uint64_t shared = shape.families > 0 ? families.below(tokens + 1) : 0;
    for (uint32_t position = 0; position < tokens; ++position) {
      ask.prompt.push_back(prompt_token(position < shared ? family : ask.seed, position));
    }
    ask.stream = random.chance(0.5);
    ask.arrives = start + Duration(random.below(static_cast<uint64_t>(shape.duration.count())));
    if (random.chance(shape.leaving)) {
      ask.leaves = ask.arrives + std::chrono::microseconds(random.below(200'000));
    }
    asks.push_back(ask);
  }
  if (shape.tenants > 0) {
    add_tenants(shape, Random(mix(seed + 2)), asks);
  }
  Random behind(mix(seed + 3));
  for (Ask& ask : asks) {
    ask.background = behind.chance(shape.background);
  }
  if (shape.killer != Kills::kNobody) {
    Ask& killer = asks[mix(seed + 1) % asks.size()];
    killer.kills = shape.killer;
    if (shape.killer == Kills::kPrompt) {
      killer.prompt.back() = kKillingToken;
    }
  }
  return asks;
}

}  // namespace pdjob::simulation
