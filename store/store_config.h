// The section `kv_store` of a job file: processes that keep the KV of prompts beside the workers,
// one on each node. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_reader.h"

namespace pdjob::store {

// Behind the memory of each store.
struct StoreDiskConfig {
  std::string path;    // A folder on each node. Empty: no disk.
  uint64_t bytes = 0;  // Of each store.
};

struct StoreConfig {
  uint64_t memory_bytes = 0;  // Of each store. 0: the job has no stores.
  StoreDiskConfig disk;

  bool on() const { return memory_bytes > 0; }
};

void read(ConfigReader& in, StoreConfig& config);

}  // namespace pdjob::store
