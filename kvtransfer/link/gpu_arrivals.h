// Sums of rows that a GPU makes in its own memory, for all transports between GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.h"
#include "gpu/gpu.h"
#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

// Returns the windows of a region in GPU memory, in the form that Gpu takes.
std::vector<GpuWindow> gpu_windows(const Region& region);

// Has a receiver's GPU sum the rows of a target in its memory, all rows that are in place at once.
// Loop-bound.
class GpuArrivals {
 public:
  GpuArrivals(LinkStream& stream, Gpu& gpu, const Region& target)
      : stream_(stream), gpu_(gpu), windows_(gpu_windows(target)) {}

  // Rows [0, rows) are in place.
  void in_place(uint32_t rows) { in_place_ = rows; }
  // Like RowReceiver::advance().
  Progress advance(size_t bytes_max);
  uint32_t rows_arrived() const { return arrived_; }
  uint64_t digest() const { return sum_; }

 private:
  Result<bool> sum_is_there();

  LinkStream& stream_;
  Gpu& gpu_;
  const std::vector<GpuWindow> windows_;
  uint32_t in_place_ = 0;
  uint32_t summed_ = 0;  // Rows that the queue's sum covers, once it is idle.
  uint32_t arrived_ = 0;
  uint64_t sum_ = 0;
  std::unique_ptr<GpuQueue> queue_;
};

}  // namespace pdjob::kvtransfer
