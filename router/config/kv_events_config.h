// The `router.kv_events:` section. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_reader.h"

namespace pdjob::router {

struct KvEventsConfig {
  bool own_workers = true;  // Of the job, or of pdjob: they need no port.
  uint16_t port = 0;  // Of other engines, unless their URL says otherwise. 0: none is followed.
  uint16_t replay_port = 0;  // The same. 0: no replay.
  std::string topic;
};

void read(ConfigReader& in, KvEventsConfig& config);

}  // namespace pdjob::router
