// The `router.kv_events:` section. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config_reader.h"

namespace pdjob::router {

struct KvEventsConfig {
  bool own_workers = true;   // pdjob's, which need no port.
  uint16_t port = 0;         // Of others, unless their own URL says otherwise. 0: none is asked.
  uint16_t replay_port = 0;  // The same. 0: they tell nothing of the past.
  std::string topic;
};

void read(ConfigReader& in, KvEventsConfig& config);

}  // namespace pdjob::router
