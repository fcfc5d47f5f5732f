// The `router.async` section. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config_reader.h"
#include "common/time.h"

namespace pdjob::router {

struct CallbackConfig {
  std::vector<std::string> allowed;  // Who may be called (callback_url.h). Empty: nobody is.
  std::string secret_file;           // Empty: calls are not signed.
  uint32_t attempts = 15;            // With the waits between them, about two hours.
  Duration timeout = std::chrono::seconds(10);  // Of one attempt.
  Duration wait_max = std::chrono::hours(1);    // Between two of them.
  uint32_t in_flight_max = 4;                   // Calls to one of `allowed` at once.
};

struct AsyncConfig {
  std::string file;  // SQLite; made where there is none. Empty: no requests without a connection.
  Duration ttl = std::chrono::hours(24);
  uint32_t queue_max = 1000;
  uint32_t in_flight_max = 16;
  uint32_t results_max = 10'000;
  CallbackConfig callbacks;
};

void read(ConfigReader& in, AsyncConfig& config);

}  // namespace pdjob::router
