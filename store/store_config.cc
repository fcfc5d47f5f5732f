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

}  // namespace

void read(ConfigReader& in, StoreConfig& config) {
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
  if (!config.disk.path.empty() && !config.on()) {
    in.fail("disk", "is behind a store's memory: set `memory`, too");
  }
}

}  // namespace pdjob::store
