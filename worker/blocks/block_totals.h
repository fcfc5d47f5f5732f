// What a worker has taken from its store of KV, and given to it, since it started. Value.
#pragma once

#include <cstdint>

namespace pdjob::worker {

struct BlockTotals {
  uint64_t tokens_asked = 0;   // Of the store.
  uint64_t tokens_loaded = 0;  // Of the former: they came.
  uint64_t tokens_given = 0;   // The store fetched them.
  uint64_t failures = 0;       // Times that the store failed, or was late.
};

}  // namespace pdjob::worker
