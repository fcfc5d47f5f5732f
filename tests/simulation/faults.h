// The faults of a run: events at instants, and chances that hold while the faults last. All are
// drawn from the seed. Values.
#pragma once

#include <cstdint>
#include <vector>

#include "common/random.h"
#include "common/time.h"

namespace pdjob::simulation {

enum class FaultKind {
  kKill,        // The process dies and comes back as a new incarnation.
  kFreeze,      // The process stops, as by SIGSTOP, and continues later.
  kSlow,        // The steps of the process take longer.
  kStepFails,   // The next step of the process fails.
  kLinkBreaks,  // One of the KV links.
  kLegBreaks,   // One of the router's connections.
};

struct Fault {
  Instant when;
  FaultKind kind = FaultKind::kKill;
  uint64_t target = 0;  // Taken modulo the number of candidates at that time.
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
  Instant end;  // The faults end here.

  bool empty() const;
};

// Every fourth seed gets an empty plan: every request must then succeed.
FaultPlan make_fault_plan(Instant start, Duration duration, uint64_t seed);

}  // namespace pdjob::simulation
