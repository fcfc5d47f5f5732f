// What goes wrong in a run: events at instants, and chances that hold while the faults last. All
// drawn from the seed. Values.
#pragma once

#include <cstdint>
#include <vector>

#include "common/random.h"
#include "common/time.h"

namespace pdjob::simulation {

enum class FaultKind {
  kKill,        // The process dies, and comes back as a new incarnation.
  kFreeze,      // It stops, as by SIGSTOP, and goes on later.
  kSlow,        // Its steps take longer.
  kStepFails,   // Its next step.
  kLinkBreaks,  // One of the KV links.
  kLegBreaks,   // One of the router's connections.
};

struct Fault {
  Instant when;
  FaultKind kind = FaultKind::kKill;
  uint64_t target = 0;  // Taken modulo the number of what there is then.
  Duration duration{};
};

struct FaultDials {
  double push_fails = 0;
  double row_damaged = 0;
  double step_fails = 0;
  double reserve_fails = 0;
};

struct FaultPlan {
  std::vector<Fault> faults;
  FaultDials dials;
  Instant end;  // From here on nothing goes wrong any more.

  bool empty() const;
};

// Every fourth seed has no faults at all: then everything must succeed.
FaultPlan make_fault_plan(Instant start, Duration duration, uint64_t seed);

}  // namespace pdjob::simulation
