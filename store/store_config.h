// The section `kv_store` of a job file: processes that keep the KV of prompts beside the workers,
// one on each node. Value.
#pragma once

#include <cstdint>

#include "common/config/config_reader.h"

namespace pdjob::store {

struct StoreConfig {
  uint64_t memory_bytes = 0;  // Of each store. 0: the job has no stores.

  bool on() const { return memory_bytes > 0; }
};

void read(ConfigReader& in, StoreConfig& config);

}  // namespace pdjob::store
