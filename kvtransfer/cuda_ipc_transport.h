// cuda_ipc: from one GPU's memory to another's, or the same one's, of two processes of a machine.
// The receiver's memory comes with the grant, as a handle in a descriptor; the sender maps it and
// has its GPU copy rows straight there. ROWS tells the receiver what to sum up. Nobody waits for
// copies but those who need them: the kv thread asks in its turns. Loop-bound.
#pragma once

#include <list>
#include <memory>

#include "common/gpu.h"
#include "common/limits.h"
#include "kvtransfer/transport.h"

namespace pdjob::kvtransfer {

// Mappings of the peer's memory, kept for the next grant of the same. Least recently used ones go
// first; one in use lives on in its user's hands. Loop-bound.
class GpuMappings {
 public:
  explicit GpuMappings(Gpu& gpu) : gpu_(gpu) {}

  // kInvalidArgument: not that much memory of a GPU in our reach.
  Result<std::shared_ptr<GpuMemory>> map(const UniqueFd& shared, uint64_t id, uint64_t bytes);

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
            .range_bytes = limits::kGpuRangeBytes,
            .sums_rows = true};
  }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, UniqueFd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override;

 private:
  LinkStream& stream_;
  Gpu& gpu_;
  GpuMappings mappings_;
};

// Of a region in a GPU's memory, as Gpu takes them.
std::vector<GpuWindow> gpu_windows(const Region& region);

// What a receiver has its GPU sum up: rows of a target in its memory, all that are in place at
// once. Loop-bound.
class GpuArrivals {
 public:
  GpuArrivals(LinkStream& stream, Gpu& gpu, const Region& target)
      : stream_(stream), gpu_(gpu), windows_(gpu_windows(target)) {}

  // Rows [0, rows) are.
  void in_place(uint32_t rows) { in_place_ = rows; }
  // As of RowReceiver.
  Progress advance(size_t bytes_max);
  uint32_t rows_arrived() const { return arrived_; }
  uint64_t digest() const { return sum_; }

 private:
  Result<bool> sum_is_there();

  LinkStream& stream_;
  Gpu& gpu_;
  const std::vector<GpuWindow> windows_;
  uint32_t in_place_ = 0;
  uint32_t summed_ = 0;  // By the queue, when it is idle.
  uint32_t arrived_ = 0;
  uint64_t sum_ = 0;
  std::unique_ptr<GpuQueue> queue_;
};

}  // namespace pdjob::kvtransfer
