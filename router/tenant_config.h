// The `router.tenants` section: who may ask, how much, and with what weight. Keys are stored
// hashed, so that a job file holds no secret. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config_reader.h"

namespace pdjob::router {

struct TenantConfig {
  std::string name;
  std::string key_sha256;            // Of the API key: 64 hexadecimal digits, in lower case.
  uint32_t requests_per_minute = 0;  // 0: no limit; the next three, too.
  uint64_t tokens_per_minute = 0;    // Prompt, estimated, and the most that may be generated.
  uint32_t requests_max = 0;         // Alive at once.
  uint32_t weight = 1;               // Share of the queue among tenants of one priority.
  uint32_t priority = 0;             // Higher ones are served first.
};

void read(ConfigReader& in, std::vector<TenantConfig>& tenants);

}  // namespace pdjob::router
