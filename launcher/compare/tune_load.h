// `pdjob tune`: finds the workers that a load needs, and prints them.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/compare/simulate_arguments.h"

namespace pdjob::launcher {

inline constexpr uint32_t kTunedWorkersMax = 1024;

struct TuneLoadFlags {
  uint32_t workers = 0;  // Exactly so many; 0: as few as are enough.
  uint32_t workers_max = 64;
  double percent = 95;  // Of the requests that are to be within the SLO.
  double margin = 1.1;
  std::string out;  // A job file that is written, too; empty: none.
};

// Returns the exit code: kExitOk if a fleet was found. `places` outlives the call.
int tune_load(const SimulationOptions& options, const TuneLoadFlags& flags, const Places& places);

}  // namespace pdjob::launcher
