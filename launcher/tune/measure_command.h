// `pdjob tune --measure`: measures a running engine, and writes its model.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/tune/tuned_servers.h"

namespace pdjob::launcher {

struct MeasureFlags {
  TunedServers servers;
  std::string out;
  std::string name;    // Of the model; empty: the one that the API has.
  std::string model;   // As the API calls it; empty: its only one.
  std::string device;  // What reports say of the machine.
  uint32_t chunk_tokens = 0;
  uint32_t seconds = 120;
};

// Returns the exit code (common/exit_code.h).
int measure_engine(const MeasureFlags& flags, const Places& places);

}  // namespace pdjob::launcher
