#include "tests/simulation/faults.h"

namespace pdjob::simulation {
namespace {

constexpr uint64_t kFaultsMax = 16;
constexpr uint64_t kFaultlessOneIn = 4;

}  // namespace

bool FaultPlan::empty() const {
  return faults.empty() &&
         dials.push_fails + dials.row_damaged + dials.step_fails + dials.reserve_fails == 0;
}

FaultPlan make_fault_plan(Instant start, Duration duration, uint64_t seed) {
  FaultPlan plan{.end = start + duration};
  if (seed % kFaultlessOneIn == 0) {
    return plan;
  }
  Random random(mix(seed));
  // A run draws only a few kinds: if everything fails at once, a run explores little.
  static constexpr FaultKind kKinds[] = {FaultKind::kKill,       FaultKind::kFreeze,
                                         FaultKind::kSlow,       FaultKind::kStepFails,
                                         FaultKind::kLinkBreaks, FaultKind::kLegBreaks};
  std::vector<FaultKind> kinds;
  for (const FaultKind kind : kKinds) {
    if (random.chance(0.4)) {
      kinds.push_back(kind);
    }
  }
  for (uint64_t left = kinds.empty() ? 0 : random.below(kFaultsMax); left > 0; --left) {
    Fault fault{.when = start + Duration(random.below(static_cast<uint64_t>(duration.count()))),
                .kind = kinds[random.below(kinds.size())],
                .target = random.next(),
                .duration = std::chrono::microseconds(1000 + random.below(1'500'000))};
    plan.faults.push_back(fault);
  }
  const auto dial = [&random](double max) { return random.chance(0.3) ? max * random.unit() : 0; };
  plan.dials = {.push_fails = dial(0.05),
                .row_damaged = dial(0.05),
                .step_fails = dial(0.02),
                .reserve_fails = dial(0.05)};
  return plan;
}

}  // namespace pdjob::simulation
