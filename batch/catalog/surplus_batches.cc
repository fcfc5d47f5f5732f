#include "batch/catalog/surplus_batches.h"

namespace pdjob::batch {
namespace {

uint64_t bytes_of(const BatchRecord& batch) {
  return sizeof batch + batch.metadata.size() + batch.errors.size();
}

}  // namespace

std::vector<std::string> surplus_batches(const Shelf<BatchRecord>& batches, const BatchRecord& next,
                                         const KeptBatches& kept) {
  size_t count = 1;
  uint64_t bytes = bytes_of(next);
  batches.for_each_of(next.tenant, [&](const BatchRecord& batch) {
    ++count;
    bytes += bytes_of(batch);
  });
  std::vector<std::string> surplus;
  batches.for_each_of(next.tenant, [&](const BatchRecord& batch) {
    if (batch.ended() && (count > kept.batches || bytes > kept.bytes)) {
      surplus.push_back(batch.id);
      --count;
      bytes -= bytes_of(batch);
    }
  });
  return surplus;
}

}  // namespace pdjob::batch
