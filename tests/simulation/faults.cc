#include "tests/simulation/faults.h"

#include <algorithm>

namespace pdjob::simulation {
namespace {

constexpr std::array<std::pair<const char*, FaultKind>, 18> kKinds = {
    {{"kill", &FaultWeights::kill},
     {"freeze", &FaultWeights::freeze},
     {"slow", &FaultWeights::slow},
     {"hang", &FaultWeights::hang},
     {"step fails", &FaultWeights::step_fails},
     {"KV link breaks", &FaultWeights::kv_link_breaks},
     {"connection breaks", &FaultWeights::connection_breaks},
     {"connection goes dead", &FaultWeights::goes_dead},
     {"partition", &FaultWeights::partition},
     {"node lost", &FaultWeights::node_lost},
     {"reorganise", &FaultWeights::reorganise},
     {"an agent's link breaks", &FaultWeights::agent_link_breaks},
     {"trainer", &FaultWeights::trainer},
     {"the launcher dies", &FaultWeights::launcher_dies},
     {"limps", &FaultWeights::limps},
     {"node limps", &FaultWeights::node_limps},
     {"starve", &FaultWeights::starve},
     {"poison", &FaultWeights::poison}}};

}  // namespace

std::string to_string(FaultKind kind) {
  return std::ranges::find(kKinds, kind, &std::pair<const char*, FaultKind>::second)->first;
}

bool FaultPlan::empty() const {
  return faults.empty() && std::ranges::all_of(kFaultDials, [this](const auto& dial) {
           return dials.*dial.second == 0;
         });
}

bool FaultPlan::has_only(std::initializer_list<FaultKind> kinds) const {
  FaultPlan others = *this;
  std::erase_if(others.faults, [&](const Fault& fault) {
    return std::ranges::find(kinds, fault.kind) != kinds.end();
  });
  return others.empty();
}

FaultPlan make_fault_plan(const Scenario& scenario, Instant start, uint64_t seed) {
  FaultPlan plan;
  Random random(mix(seed));
  if (random.chance(scenario.faultless)) {
    return plan;
  }
  // A run draws only a few kinds: if everything fails at once, a run explores little.
  std::vector<FaultKind> kinds;
  for (const auto& [name, kind] : kKinds) {
    if (scenario.weights.*kind > 0 && random.chance(0.4)) {
      kinds.insert(kinds.end(), scenario.weights.*kind, kind);
    }
  }
  for (uint32_t left = kinds.empty() ? 0 : scenario.faults.draw(random); left > 0; --left) {
    plan.faults.push_back(
        {.when = start + Duration(random.below(static_cast<uint64_t>(scenario.load.count()))),
         .kind = kinds[random.below(kinds.size())],
         .target = random.next(),
         .duration = std::chrono::microseconds(
             1000 + random.below(random.chance(0.2) ? 15'000'000 : 1'500'000))});
  }
  const auto dial = [&random](double max) { return random.chance(0.3) ? max * random.unit() : 0; };
  plan.dials = {.messages_lost = dial(scenario.messages_lost),
                .push_fails = dial(scenario.push_fails),
                .row_damaged = dial(scenario.row_damaged),
                .step_fails = dial(scenario.step_fails),
                .reserve_fails = dial(scenario.reserve_fails),
                .spawn_fails = dial(scenario.spawn_fails),
                .messages_twice = dial(scenario.messages_twice),
                .agent_messages_lost = dial(scenario.agent_messages_lost)};
  return plan;
}

}  // namespace pdjob::simulation
