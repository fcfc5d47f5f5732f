// Gpu: one GPU as pdjob itself uses it: memory that another process can be given, copies, and sums
// that prove rows. What it waits for is this GPU's own work, never a peer: whatever here blocks
// ends by itself, and if it does not within seconds, the process ends. Loop-bound: to one thread at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/gpu_api.h"
#include "common/result.h"

namespace pdjob {

class Gpu;

// Memory of a GPU, mapped in this process: our own, or another process's. The GPU outlives it, and
// so does every copy from and to it. Addresses in it are not to be touched by the CPU. Value
// (move-only).
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
  // Of our own memory, owned: what another process imports. -1: imported.
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

// Memory of the host that copies reach fast. The GPU outlives it. Value (move-only).
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
  const Gpu* gpu_ = nullptr;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

struct GpuCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

// Puts copies on a stream, as one batch: each end is in the GPU's memory or the host's pinned
// memory, and the copies keep no order among themselves.
GpuResult copy_batch(const GpuApi& gpu, std::span<const GpuCopy> copies, GpuStream* stream);

// One strided array of rows in the GPU's memory.
struct GpuWindow {
  const std::byte* base = nullptr;  // Of row 0.
  uint32_t row_bytes = 0;
};

// Streams of a GPU, kept for the next user, and pinned memory for sums.
struct GpuStreams {
  GpuStream* copies = nullptr;
  GpuStream* sums = nullptr;
  PinnedMemory pinned;  // The windows of a sum, then the sums of its blocks.
};

// Copies and sums of one user. Copies keep their order; sums do not wait for copies, nor does
// another user for either. The GPU outlives it. Destroying it waits for what is under way.
class GpuQueue {
 public:
  static Result<std::unique_ptr<GpuQueue>> open(Gpu& gpu);
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;
  ~GpuQueue();

  // In the GPU's memory or the host's pinned memory, on either end.
  Status copy(std::span<const GpuCopy> copies);
  // Makes the sum of row_sum_kernel.cu over rows [first_row, first_row + rows) of `windows`.
  // Requires: once in the life of a queue.
  Status sum_rows(std::span<const GpuWindow> windows, uint32_t first_row, uint32_t rows);
  // True: all that was given is done. An error is the GPU's, and lasts.
  Result<bool> idle();
  Status wait();
  // Requires: idle.
  uint64_t sum() const;

 private:
  friend class Gpu;
  GpuQueue(Gpu& gpu, GpuStreams streams) : gpu_(gpu), streams_(std::move(streams)) {}

  Gpu& gpu_;
  GpuStreams streams_;
  std::span<const uint64_t> sums_;  // Of blocks.
};

class Gpu {
 public:
  // `library`: the CUDA runtime, a path or a name that the dynamic linker finds. kUnsupported: what
  // this machine lacks.
  static Result<std::unique_ptr<Gpu>> open(const std::string& library, uint32_t device);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  uint32_t device() const { return device_; }
  // At least `bytes`, rounded up; whatever is there is there. kUnavailable: no memory.
  Result<GpuMemory> allocate(uint64_t bytes);
  // `bytes` of another process's memory, whose descriptor is not needed any more then.
  // kInvalidArgument: it is no such memory, or smaller than that.
  Result<GpuMemory> import(int fd, uint64_t bytes);
  Result<PinnedMemory> pin(size_t bytes);
  // Copies, from and to any memory, and waits.
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
  Result<GpuStreams> take_streams();
  void free(const GpuStreams& streams);
  Error failed(GpuResult result, const char* what) const { return gpu_error(api_, result, what); }

  const GpuApi api_;
  GpuDriver driver_{};
  const uint32_t device_;
  uint64_t unit_ = 0;  // Bytes; of allocations and mappings.
  GpuModule* module_ = nullptr;
  GpuFunction* row_sum_ = nullptr;
  std::vector<GpuStreams> resting_;
};

}  // namespace pdjob
