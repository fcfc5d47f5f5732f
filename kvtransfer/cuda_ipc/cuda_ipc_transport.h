// cuda_ipc: moves rows between two processes of a machine, from one GPU's memory to another's or
// the same one's. The receiver's memory comes with the grant, as a handle in a descriptor. The
// sender maps it and has its GPU copy rows straight there. ROWS tells the receiver which rows to
// sum. The kv thread polls for the copies in its turns. Loop-bound.
#pragma once

#include <list>
#include <memory>

#include "common/limits.h"
#include "gpu/gpu.h"
#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

// Mappings of the peer's memory, kept for the next grant of the same memory. Evicts the least
// recently used one. An evicted mapping lives as long as it has a user. Loop-bound.
class GpuMappings {
 public:
  explicit GpuMappings(Gpu& gpu) : gpu_(gpu) {}

  // kInvalidArgument: `shared` is not that much memory of a GPU that we can reach.
  Result<std::shared_ptr<GpuMemory>> map(const Fd& shared, uint64_t id, uint64_t bytes);

 private:
  struct Entry {
    uint64_t id = 0;
    std::shared_ptr<GpuMemory> memory;
  };

  Gpu& gpu_;
  std::list<Entry> entries_;  // Most recently used first.
};

class CudaIpcTransport final : public Transport {
 public:
  // The GPU outlives the transport.
  CudaIpcTransport(LinkStream& stream, Gpu& gpu) : stream_(stream), gpu_(gpu), mappings_(gpu) {}

  TransportCapabilities capabilities() const override {
    return {.name = "cuda_ipc",
            .writes_target = true,
            .device_writes = true,
            .range_bytes = limits::kGpuRangeBytes,
            .sums_rows = true};
  }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, Fd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override;

 private:
  LinkStream& stream_;
  Gpu& gpu_;
  GpuMappings mappings_;
};

}  // namespace pdjob::kvtransfer
