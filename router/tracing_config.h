// The `router.tracing` section. Value.
#pragma once

#include <string>

#include "common/config_reader.h"

namespace pdjob::router {

struct TracingConfig {
  std::string endpoint;  // Of a collector that takes OTLP over HTTP; empty: nothing is traced.
  double ratio = 1;      // Of the requests whose client has not decided it.
};

void read(ConfigReader& in, TracingConfig& config);

}  // namespace pdjob::router
