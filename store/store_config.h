// The section `kv_store` of a job file: processes that keep the KV of prompts beside the workers,
// one on each node. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "engine/recipes/engine_command.h"
#include "engine/stores/store_program.h"

namespace pdjob::store {

// Behind the memory of each store.
struct StoreDiskConfig {
  std::string path;    // A folder on each node. Empty: no disk.
  uint64_t bytes = 0;  // Of each store.
};

enum class StoreKind : uint8_t { kPdjob, kMooncake, kLmcache };
enum class StoreTransport : uint8_t { kTcp, kRdma };
// As engine/stores has it; empty for pdjob's own.
std::string kind_word(StoreKind kind);

// Of stores that are programs of another make.
struct StoreProgramConfig {
  uint16_t port = 0;  // Where engines ask; 0: as usual for its kind.
  StoreTransport transport = StoreTransport::kTcp;
  std::string folder;  // Where its programs are; empty: in PATH.
  std::vector<std::string> args;
};

// The name of the one process that all stores of a job ask, where their make has one. It has the
// role of a store, and is on the node of the routers.
inline constexpr const char* kMaster = "store-master";

struct StoreConfig {
  uint64_t memory_bytes = 0;  // Of each store. 0: the job has no stores.
  StoreDiskConfig disk;
  StoreKind kind = StoreKind::kPdjob;
  StoreProgramConfig program;

  bool is_foreign() const { return kind != StoreKind::kPdjob; }
  bool has_master() const { return is_foreign() && engine::has_master(kind_word(kind)); }

  bool on() const { return memory_bytes > 0; }
};

void read(ConfigReader& in, StoreConfig& config);

// Such a program, and how engines and the program itself see it. Require: config.is_foreign().
engine::ForeignConfig program_of(const StoreConfig& config, bool is_master);
engine::StoreUse use_of(const StoreConfig& config, const std::string& master_host);

}  // namespace pdjob::store
