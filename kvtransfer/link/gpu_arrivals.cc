#include "kvtransfer/link/gpu_arrivals.h"

namespace pdjob::kvtransfer {

Progress GpuArrivals::advance(size_t bytes_max) {
  while (arrived_ < in_place_) {
    if (bytes_max == 0) {
      return Progress::kOthersFirst;
    }
    const Result<bool> done = sum_is_there();
    if (!done) {
      stream_.fail(done.error());
      return Progress::kBlocked;
    }
    if (!*done) {
      return Progress::kOthersFirst;
    }
    sum_ += queue_->sum();
    queue_.reset();
    arrived_ = summed_;
  }
  return Progress::kDone;
}

// True: the sum is finished. It covers all rows that were in place when it began.
Result<bool> GpuArrivals::sum_is_there() {
  if (queue_ == nullptr) {
    PDJOB_TRY(queue_, GpuQueue::open(gpu_));
    summed_ = in_place_;
    PDJOB_TRY_STATUS(queue_->sum_rows(windows_, arrived_, summed_ - arrived_));
  }
  return queue_->idle();
}

std::vector<GpuWindow> gpu_windows(const Region& region) {
  std::vector<GpuWindow> windows;
  windows.reserve(region.windows.size());
  for (const Window& window : region.windows) {
    windows.push_back({window.base, window.row_bytes});
  }
  return windows;
}

}  // namespace pdjob::kvtransfer
