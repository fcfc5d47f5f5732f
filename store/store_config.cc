#include "store/store_config.h"

namespace pdjob::store {
namespace {

void read(ConfigReader& in, StoreDiskConfig& disk) {
  in.path("path", disk.path,
          {.doc = "A folder on each node, for the job's owner only: it has what prompts were made "
                  "of. It is made if it is not there. Empty: no disk."});
  in.field("bytes", disk.bytes,
           {.doc = "What each store may use there, such as 200GiB.", .unit = "bytes"},
           {.min = 0, .max = uint64_t{1} << 50});
  if (disk.path.empty() != (disk.bytes == 0)) {
    in.fail(disk.path.empty() ? "path" : "bytes", "is missing: a disk has a path and a size");
  }
}

void read_program(ConfigReader& in, StoreConfig& config) {
  StoreProgramConfig& program = config.program;
  in.field("port", program.port,
           {"Of a store of another make: where engines ask. 0: 50051 of mooncake, 5555 of "
            "lmcache. Jobs that share a node need different ones."});
  in.field("transport", program.transport,
           {{"tcp", StoreTransport::kTcp}, {"rdma", StoreTransport::kRdma}},
           {"Of mooncake: how its KV moves. rdma needs NICs that can."});
  in.path("programs", program.folder,
          {.doc = "Of a store of another make: the folder of its programs, such as "
                  "/opt/venv/bin. Empty: they are found in PATH."});
  in.field("args", program.args,
           {"Of a store of another make: more arguments of the program on each node. An option "
            "that pdjob sets, too, is used as it stands here."});
  for (const char* const key : {"port", "transport", "programs", "args"}) {
    if (!config.is_foreign() && in.has(key)) {
      in.fail(key, "is for stores of other makes; `kind` names pdjob's own");
    }
  }
  if (config.kind == StoreKind::kLmcache && in.has("transport")) {
    in.fail("transport", "is of mooncake: lmcache serves engines of its own machine");
  }
  if (config.is_foreign() && !config.on()) {
    in.fail("memory", "is missing: how much each store may use, such as 8GiB");
  }
  if (config.is_foreign() && !config.disk.path.empty()) {
    in.fail("disk", "is of pdjob's own stores: give a store of another make its options in `args`");
  }
}

}  // namespace

void read(ConfigReader& in, StoreConfig& config) {
  in.field("kind", config.kind,
           {{"pdjob", StoreKind::kPdjob},
            {"mooncake", StoreKind::kMooncake},
            {"lmcache", StoreKind::kLmcache}},
           {"Whose stores: pdjob's, for its own engine, or those of another make, for engines "
            "whose recipes know them (docs/how-to/kv-store.md)."});
  in.field("memory", config.memory_bytes,
           {.doc = "Memory of the store on each node that runs workers, such as 8GiB. It keeps the "
                   "KV of prompts, so that workers load what any of them computed before. 0: no "
                   "stores.",
            .unit = "bytes"},
           {.min = 0, .max = uint64_t{1} << 50});
  in.section("disk",
             {.doc = "A disk behind the memory of each store. What is there survives the store, "
                     "and the job."},
             [&](ConfigReader& section) { read(section, config.disk); });
  if (!config.disk.path.empty() && !config.on() && !config.is_foreign()) {
    in.fail("disk", "is behind a store's memory: set `memory`, too");
  }
  read_program(in, config);
}

std::string kind_word(StoreKind kind) {
  return kind == StoreKind::kMooncake ? "mooncake" : kind == StoreKind::kLmcache ? "lmcache" : "";
}

engine::ForeignConfig program_of(const StoreConfig& config, bool is_master) {
  return engine::program_of({.kind = kind_word(config.kind),
                             .is_master = is_master,
                             .folder = config.program.folder,
                             .args = config.program.args});
}

engine::StoreUse use_of(const StoreConfig& config, const std::string& master_host) {
  const std::string kind = kind_word(config.kind);
  return {.kind = kind,
          .host = engine::serves_own_machine(kind) ? "127.0.0.1" : master_host,
          .port = config.program.port != 0 ? config.program.port : engine::usual_store_port(kind),
          .transport = config.program.transport == StoreTransport::kTcp ? "tcp" : "rdma",
          .memory_bytes = config.memory_bytes};
}

}  // namespace pdjob::store
