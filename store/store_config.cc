#include "store/store_config.h"

namespace pdjob::store {

void read(ConfigReader& in, StoreConfig& config) {
  in.field("memory", config.memory_bytes,
           {.doc = "Memory of the store on each node that runs workers, such as 8GiB. It keeps the "
                   "KV of prompts, so that workers load what any of them computed before. 0: no "
                   "stores.",
            .unit = "bytes"},
           {.min = 0, .max = uint64_t{1} << 50});
}

}  // namespace pdjob::store
