// The `router.audit` section. Value.
#pragma once

#include <cstdint>

#include "common/config/config_reader.h"

namespace pdjob::router {

struct AuditConfig {
  double share = 0;  // Of greedy requests whose KV was handed over. 0: no audit.
  // A token that is less likely than another by no more than this may as well have been chosen.
  double tie = 0.5;
  uint32_t mismatches = 2;  // Of a pair, within ten minutes, until it is avoided.
};

void read(ConfigReader& in, AuditConfig& config);

}  // namespace pdjob::router
