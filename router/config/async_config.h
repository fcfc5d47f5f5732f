// The `router.async` section. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "common/time.h"

namespace pdjob::router {

struct CallbackConfig {
  std::vector<std::string> allowed;  // Receivers that may be called (callback_url.h). Empty: none.
  std::string ca_file;               // Of authorities that are trusted; empty: the system's.
  std::string secret_file;           // Empty: calls are not signed.
  uint32_t attempts = 15;            // With the waits between them: about two hours.
  Duration timeout = std::chrono::seconds(10);  // For one attempt.
  Duration wait_max = std::chrono::hours(1);    // Between two attempts.
  uint32_t in_flight_max = 4;                   // Concurrent calls to one receiver.
};

struct AsyncConfig {
  std::string file;  // SQLite; created if missing. Empty: no asynchronous requests.
  Duration ttl = std::chrono::hours(24);
  uint32_t queue_max = 1000;
  uint32_t in_flight_max = 16;
  uint32_t results_max = 10'000;
  CallbackConfig callbacks;
};

void read(ConfigReader& in, AsyncConfig& config);

}  // namespace pdjob::router
