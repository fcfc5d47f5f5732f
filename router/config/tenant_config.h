// The `router.tenants` section: who may send requests, how many, and with what weight. Keys are
// stored as hashes, so a job file holds no secret. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"

namespace pdjob::router {

struct TenantConfig {
  std::string name;
  std::string key_sha256;            // SHA-256 of the API key: 64 hex digits, in lower case.
  uint32_t requests_per_minute = 0;  // 0: no limit; the same for the next two.
  uint64_t tokens_per_minute = 0;    // Estimated prompt, and the most that may be generated.
  uint32_t requests_max = 0;         // Unfinished at once.
  uint32_t weight = 1;               // Share of the queue among tenants of one priority.
  uint32_t priority = 0;             // A higher priority is served first.
  bool admin = false;                // May load and unload adapters.
};

void read(ConfigReader& in, std::vector<TenantConfig>& tenants);

// Copies what a tenant may do, to each that has the same name and key at the same place.
void take_limits(const std::vector<TenantConfig>& from, std::vector<TenantConfig>& to);

}  // namespace pdjob::router
