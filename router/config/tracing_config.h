// The `router.tracing` section. Value.
#pragma once

#include <string>

#include "common/config/config_reader.h"

namespace pdjob::router {

struct TracingConfig {
  std::string endpoint;  // A collector that takes OTLP over HTTP; empty: no tracing.
  std::string ca_file;   // Of authorities that are trusted; empty: the system's.
  double ratio = 1;      // Share of requests to trace, 0 to 1, if the client has not decided.
};

void read(ConfigReader& in, TracingConfig& config);

}  // namespace pdjob::router
