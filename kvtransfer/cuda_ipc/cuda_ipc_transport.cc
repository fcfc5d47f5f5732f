#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kvtransfer/link/gpu_arrivals.h"

namespace pdjob::kvtransfer {
namespace {

class CudaIpcRowSender final : public RowSender {
 public:
  CudaIpcRowSender(LinkStream& stream, Gpu& gpu, TransferId id, std::shared_ptr<GpuMemory> memory,
                   std::vector<Window> target)
      : stream_(stream),
        gpu_(gpu),
        id_(id),
        memory_(std::move(memory)),
        target_windows_(std::move(target)) {}

  void start(const Region& source, RowRange range) override {
    source_ = &source;
    range_ = range;
  }

  // A copy costs this thread the same for any size, so a range is started at once or not at all.
  Result<Progress> advance(size_t bytes_max) override {
    if (bytes_max == 0) {
      return Progress::kOthersFirst;
    }
    if (queue_ == nullptr) {
      PDJOB_TRY_STATUS(begin());
    }
    PDJOB_TRY(const bool done, queue_->idle());
    if (!done) {
      return Progress::kOthersFirst;
    }
    digest_ += queue_->sum();
    queue_.reset();
    stream_.send(Rows{.id = id_, .first = range_.first, .count = range_.count});
    return Progress::kDone;
  }

  uint64_t digest() const override { return digest_; }

 private:
  Status begin() {
    if (!source_->device) {
      return Error{ErrorCode::kUnsupported, "cuda_ipc takes rows from a GPU's memory only"};
    }
    PDJOB_TRY(queue_, GpuQueue::open(gpu_));
    std::vector<GpuWindow> windows = gpu_windows(*source_);
    for (size_t i = 0; i < windows.size(); ++i) {
      windows[i].to = target_windows_[i].base;
    }
    return queue_->sum_rows(windows, range_.first, range_.count);
  }

  LinkStream& stream_;
  Gpu& gpu_;
  const TransferId id_;
  const std::shared_ptr<GpuMemory> memory_;
  const std::vector<Window> target_windows_;
  const Region* source_ = nullptr;
  RowRange range_;
  uint64_t digest_ = 0;
  // Set while a range is under way. Last member: its destructor waits for copies to the memory,
  // also those of a push that was cut short. They must finish before the receiver is told that we
  // have stopped.
  std::unique_ptr<GpuQueue> queue_;
};

class CudaIpcRowReceiver final : public RowReceiver {
 public:
  CudaIpcRowReceiver(LinkStream& stream, Gpu& gpu, TransferId id, const Region& target)
      : stream_(stream), id_(id), arrivals_(stream, gpu, target) {}

  PayloadSink* announced(RowRange range) override {
    arrivals_.in_place(range.first + range.count);
    stream_.rows_came(id_);
    return nullptr;
  }
  Progress advance(size_t bytes_max) override { return arrivals_.advance(bytes_max); }
  uint32_t rows_arrived() const override { return arrivals_.rows_arrived(); }
  uint64_t digest() const override { return arrivals_.digest(); }

 private:
  LinkStream& stream_;
  const TransferId id_;
  GpuArrivals arrivals_;
};

}  // namespace

Result<std::shared_ptr<GpuMemory>> GpuMappings::map(const Fd& shared, uint64_t id, uint64_t bytes) {
  const auto known =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.id == id; });
  if (known != entries_.end() && known->memory->bytes() >= bytes) {
    entries_.splice(entries_.begin(), entries_, known);
    return known->memory;
  }
  if (known != entries_.end()) {
    entries_.erase(known);
  }
  PDJOB_TRY(GpuMemory memory, gpu_.import(shared.get(), bytes));
  entries_.push_front({id, std::make_shared<GpuMemory>(std::move(memory))});
  if (entries_.size() > limits::kGpuMappingsMax) {
    entries_.pop_back();
  }
  return entries_.front().memory;
}

Result<std::unique_ptr<RowSender>> CudaIpcTransport::open_sender(const Grant& grant, Fd shared) {
  if (!shared.valid()) {
    return Error{ErrorCode::kInvalidArgument, "a grant came without its memory"};
  }
  PDJOB_TRY(std::shared_ptr<GpuMemory> memory,
            mappings_.map(shared, grant.shared_id, grant.shared_bytes));
  PDJOB_TRY(std::vector<Window> windows, granted_windows(grant, memory->base()));
  return std::unique_ptr<RowSender>(std::make_unique<CudaIpcRowSender>(
      stream_, gpu_, grant.id, std::move(memory), std::move(windows)));
}

std::unique_ptr<RowReceiver> CudaIpcTransport::open_receiver(const Grant& grant,
                                                             const Region& target) {
  return std::make_unique<CudaIpcRowReceiver>(stream_, gpu_, grant.id, target);
}

}  // namespace pdjob::kvtransfer
