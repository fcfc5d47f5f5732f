// Gpu: one GPU as pdjob itself uses it: memory that another process can import, copies, and sums
// that prove rows. Calls wait only for this GPU's own work, never for a peer. A blocking call
// returns in seconds; if the GPU does not finish by then, the process exits. Loop-bound, one thread
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "gpu/gpu_api.h"

namespace pdjob {

class Gpu;

// Memory of a GPU, mapped in this process: our own, or imported from another process. The GPU must
// outlive it, and it must outlive every copy from and to it. The CPU must not touch its addresses.
// Value (move-only).
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(GpuMemory&& other) noexcept { swap(other); }
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~GpuMemory();

  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
  std::byte* base() const { return reinterpret_cast<std::byte*>(address_); }
  uint64_t bytes() const { return bytes_; }
  // Owned. For our own memory: the descriptor that another process imports. -1: imported memory.
  int fd() const { return fd_; }

 private:
  friend class Gpu;
  void swap(GpuMemory& other) noexcept;

  const Gpu* gpu_ = nullptr;
  GpuHandle handle_ = 0;
  GpuAddress address_ = 0;
  uint64_t bytes_ = 0;
  bool mapped_ = false;
  int fd_ = -1;
};

// Pinned host memory, which the GPU copies fast. Its end gives the memory back to the Gpu, for the
// next user: CUDA frees such memory only when all work of the process is done, also a kernel of
// NCCL that waits for a dead peer. The GPU must outlive it. Value (move-only).
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept
      : gpu_(other.gpu_),
        base_(std::exchange(other.base_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedMemory();

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  friend class Gpu;
  Gpu* gpu_ = nullptr;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

struct GpuCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

// Queues copies on a stream as one batch. Each end is in GPU memory or pinned host memory. The
// copies of a batch may run in any order.
GpuResult copy_batch(const GpuApi& gpu, std::span<const GpuCopy> copies, GpuStream* stream);

// One strided array of rows in the GPU's memory.
struct GpuWindow {
  const std::byte* base = nullptr;  // Address of row 0.
  uint32_t row_bytes = 0;
  std::byte* to = nullptr;  // Where row 0 is copied, in GPU memory; null: rows are only summed.
};

// A stream of a GPU that is reused by the next queue, and pinned memory for sums.
struct GpuStreamMemory {
  GpuStream* stream = nullptr;
  PinnedMemory pinned;  // The windows of a sum, then the sums of its blocks.
};

// One sum of rows. Queues run independently of each other. The GPU must outlive the queue. The
// destructor waits for work in progress.
class GpuQueue {
 public:
  static Result<std::unique_ptr<GpuQueue>> open(Gpu& gpu);
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;
  ~GpuQueue();

  // Computes the sum of row_sum_kernel.cu over rows [first_row, first_row + rows) of `windows`, and
  // copies those rows of windows that say where to. Requires: at most one call per queue.
  Status sum_rows(std::span<const GpuWindow> windows, uint32_t first_row, uint32_t rows);
  // True when all work is done. An error comes from the GPU and is permanent.
  Result<bool> idle();
  Status wait();
  // Requires: idle.
  uint64_t sum() const;

 private:
  friend class Gpu;
  GpuQueue(Gpu& gpu, GpuStreamMemory memory) : gpu_(gpu), memory_(std::move(memory)) {}

  Gpu& gpu_;
  GpuStreamMemory memory_;
  std::span<const uint64_t> sums_;  // One per block of the kernel.
};

class Gpu {
 public:
  // `library` is the CUDA runtime: a path, or a name that the dynamic linker finds. kUnsupported
  // names what this machine lacks.
  static Result<std::unique_ptr<Gpu>> open(const std::string& library, uint32_t device);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  uint32_t device() const { return device_; }
  // At least `bytes`, rounded up, with arbitrary content. kUnavailable: no memory left.
  Result<GpuMemory> allocate(uint64_t bytes);
  // Imports `bytes` of another process's memory. The caller may then close `fd`. kInvalidArgument:
  // `fd` is not GPU memory, or is smaller than `bytes`.
  Result<GpuMemory> import(int fd, uint64_t bytes);
  // At least `bytes`, rounded up to a power of two. kUnavailable: no memory left.
  Result<PinnedMemory> pin(size_t bytes);
  // Copies between any two kinds of memory, and waits.
  Status copy(std::span<const GpuCopy> copies);

 private:
  friend class GpuMemory;
  friend class GpuQueue;
  friend class PinnedMemory;
  Gpu(const GpuApi& api, uint32_t device) : api_(api), device_(device) {}

  Status prepare();
  Status enter() const;
  GpuLocation location() const { return {kGpuLocationDevice, static_cast<int>(device_)}; }
  uint64_t round_up(uint64_t bytes) const { return (bytes + unit_ - 1) / unit_ * unit_; }
  Status map(GpuMemory& memory);
  Result<GpuStreamMemory> take_stream();
  Error failed(GpuResult result, const char* what) const { return gpu_error(api_, result, what); }

  const GpuApi api_;
  GpuDriver driver_{};
  const uint32_t device_;
  uint64_t unit_ = 0;  // Bytes; granularity of allocations and mappings.
  GpuModule* module_ = nullptr;
  GpuFunction* row_sum_ = nullptr;
  std::multimap<size_t, std::byte*> pinned_;  // Without a user, by size. Freed with this object.
  std::vector<GpuStreamMemory> resting_;
};

}  // namespace pdjob
