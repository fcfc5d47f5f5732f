// The faults of a run: events at instants, and chances that hold while the faults last. All are
// drawn from the seed. Values.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "tests/simulation/scenario.h"

namespace pdjob::simulation {

using FaultKind = uint32_t FaultWeights::*;
std::string to_string(FaultKind kind);

struct Fault {
  Instant when;
  FaultKind kind = nullptr;
  uint64_t target = 0;  // Taken modulo the number of candidates at that time.
  Duration duration{};
};

// Chances.
struct FaultDials {
  double messages_lost = 0, push_fails = 0, row_damaged = 0, step_fails = 0, reserve_fails = 0,
         spawn_fails = 0, messages_twice = 0, agent_messages_lost = 0;
};
using FaultDial = double FaultDials::*;
inline constexpr std::array<std::pair<const char*, FaultDial>, 8> kFaultDials = {
    {{"messages lost", &FaultDials::messages_lost},
     {"pushes fail", &FaultDials::push_fails},
     {"rows damaged", &FaultDials::row_damaged},
     {"steps fail", &FaultDials::step_fails},
     {"reservations fail", &FaultDials::reserve_fails},
     {"starts fail", &FaultDials::spawn_fails},
     {"messages come twice", &FaultDials::messages_twice},
     {"messages of agents lost", &FaultDials::agent_messages_lost}}};

struct FaultPlan {
  std::vector<Fault> faults;
  FaultDials dials;

  bool empty() const;
  // Also if it is empty.
  bool has_only(std::initializer_list<FaultKind> kinds) const;
  bool only_launchers_die() const { return has_only({&FaultWeights::launcher_dies}); }
  bool only_slows() const {
    return has_only({&FaultWeights::slow, &FaultWeights::limps, &FaultWeights::node_limps});
  }
};

// An empty plan says that every request must succeed. `start` is the time of the first fault, at
// the earliest.
FaultPlan make_fault_plan(const Scenario& scenario, Instant start, uint64_t seed);

}  // namespace pdjob::simulation
