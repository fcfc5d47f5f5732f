// Which ended batches of a tenant are erased to make room for its next one. Their records are in
// memory, and a client chooses how long its metadata are. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "batch/catalog/api_records.h"
#include "batch/catalog/shelf.h"

namespace pdjob::batch {

struct KeptBatches {
  size_t batches = 10'000;              // Of one tenant, ended ones among them.
  uint64_t bytes = uint64_t{16} << 20;  // Of their records, about.
};

// Returns the ids of the oldest ended ones of `next`'s tenant. Batches that have not ended stay.
std::vector<std::string> surplus_batches(const Shelf<BatchRecord>& batches, const BatchRecord& next,
                                         const KeptBatches& kept);

}  // namespace pdjob::batch
