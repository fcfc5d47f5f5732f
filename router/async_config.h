// The `router.async` section. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config_reader.h"
#include "common/time.h"

namespace pdjob::router {

struct AsyncConfig {
  std::string file;  // SQLite; made where there is none. Empty: no requests without a connection.
  Duration ttl = std::chrono::hours(24);
  uint32_t queue_max = 1000;
  uint32_t in_flight_max = 16;
  uint32_t results_max = 10'000;
};

void read(ConfigReader& in, AsyncConfig& config);

}  // namespace pdjob::router
