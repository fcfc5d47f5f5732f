#include "gpu/gpu.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include <unistd.h>

#include "common/check.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/os/real_clock.h"
#include "common/time.h"

namespace pdjob {
namespace {

// The shape of row_sum_kernel.cu's blocks. 512 blocks fill an H100, and each costs a write to the
// host's memory.
constexpr unsigned kBlockWidth = 32;
constexpr unsigned kRowsPerBlock = 8;
constexpr unsigned kBlocksWanted = 512;

const char* const kRowSumPtx =
#include "gpu/row_sum_ptx.inc"
    ;

// All work that a GPU gets here takes far less.
constexpr Duration kWorkEnds = std::chrono::seconds(10);
constexpr unsigned kPollMicroseconds = 10;

}  // namespace

// --- GpuMemory

GpuMemory::~GpuMemory() {
  if (gpu_ == nullptr) {
    return;
  }
  const bool entered = gpu_->enter().has_value();
  const GpuDriver& driver = gpu_->driver_;
  if (entered && mapped_) {
    driver.mem_unmap(address_, bytes_);
  }
  if (entered && address_ != 0) {
    driver.mem_address_free(address_, bytes_);
  }
  if (entered && handle_ != 0) {
    driver.mem_release(handle_);
  }
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void GpuMemory::swap(GpuMemory& other) noexcept {
  std::swap(gpu_, other.gpu_);
  std::swap(handle_, other.handle_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(fd_, other.fd_);
}

PinnedMemory::~PinnedMemory() {
  if (base_ != nullptr) {
    gpu_->pinned_.emplace(bytes_, base_);
  }
}

GpuResult copy_batch(const GpuApi& gpu, std::span<const GpuCopy> copies, GpuStream* stream) {
  if (copies.empty()) {
    return kGpuSuccess;
  }
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<size_t> bytes;
  for (const GpuCopy& copy : copies) {
    to.push_back(copy.to);
    from.push_back(copy.from);
    bytes.push_back(copy.bytes);
  }
  GpuCopyAttributes attributes;
  size_t first = 0;
  return gpu.memcpy_batch_async(to.data(), from.data(), bytes.data(), copies.size(), &attributes,
                                &first, 1, stream);
}

// --- GpuQueue

Result<std::unique_ptr<GpuQueue>> GpuQueue::open(Gpu& gpu) {
  PDJOB_TRY_STATUS(gpu.enter());
  PDJOB_TRY(GpuStreamMemory memory, gpu.take_stream());
  return std::unique_ptr<GpuQueue>(new GpuQueue(gpu, std::move(memory)));
}

GpuQueue::~GpuQueue() {
  if (wait()) {
    gpu_.resting_.push_back(std::move(memory_));
  } else {
    gpu_.api_.stream_destroy(memory_.stream);
  }
}

Status GpuQueue::sum_rows(std::span<const GpuWindow> windows, uint32_t first_row, uint32_t rows) {
  PDJOB_CHECK(!windows.empty() && rows > 0 && sums_.empty());
  PDJOB_TRY_STATUS(gpu_.enter());
  const auto height = static_cast<unsigned>(windows.size());
  const unsigned width = std::clamp((rows + kRowsPerBlock - 1) / kRowsPerBlock, 1U,
                                    std::max(1U, kBlocksWanted / height));
  const size_t sums = size_t{width} * height;
  const size_t bytes = windows.size_bytes() + sums * sizeof(uint64_t);
  if (memory_.pinned.bytes() < bytes) {
    PDJOB_TRY(memory_.pinned, gpu_.pin(bytes));
  }
  std::memcpy(memory_.pinned.base(), windows.data(), windows.size_bytes());
  void* windows_at = memory_.pinned.base();
  void* sums_at = memory_.pinned.base() + windows.size_bytes();
  unsigned long long first = first_row;
  unsigned long long count = rows;
  std::array<void*, 4> arguments = {static_cast<void*>(&windows_at), &first, &count,
                                    static_cast<void*>(&sums_at)};
  const GpuResult result =
      gpu_.driver_.launch_kernel(gpu_.row_sum_, width, height, 1, kBlockWidth, kRowsPerBlock, 1, 0,
                                 memory_.stream, arguments.data(), nullptr);
  if (result != kGpuSuccess) {
    return gpu_.failed(result, "sum rows");
  }
  sums_ = {reinterpret_cast<const uint64_t*>(sums_at), sums};
  return ok();
}

Result<bool> GpuQueue::idle() {
  PDJOB_TRY_STATUS(gpu_.enter());
  const GpuResult state = gpu_.api_.stream_query(memory_.stream);
  if (state != kGpuSuccess && state != kGpuNotReady) {
    return gpu_.failed(state, "finish its work");
  }
  return state == kGpuSuccess;
}

Status GpuQueue::wait() {
  for (const Instant end = real_now() + kWorkEnds; real_now() < end; ::usleep(kPollMicroseconds)) {
    PDJOB_TRY(const bool done, idle());
    if (done) {
      return ok();
    }
  }
  // The GPU may still write to this memory, so it cannot be freed.
  log::error("the GPU does not finish its work: this process ends");
  ::_exit(kExitFailed);
}

uint64_t GpuQueue::sum() const { return std::accumulate(sums_.begin(), sums_.end(), uint64_t{0}); }

// --- Gpu

Result<std::unique_ptr<Gpu>> Gpu::open(const std::string& library, uint32_t device) {
  PDJOB_TRY(const GpuApi api, GpuApi::open(library));
  PDJOB_TRY_STATUS(api.has_device(static_cast<int>(device)));
  std::unique_ptr<Gpu> gpu(new Gpu(api, device));
  PDJOB_TRY_STATUS(gpu->prepare());
  return gpu;
}

Status Gpu::prepare() {
  PDJOB_TRY_STATUS(enter());
  PDJOB_TRY(driver_, GpuDriver::open(api_));
  const GpuAllocation wanted{.location = location()};
  size_t unit = 0;
  if (const GpuResult asked =
          driver_.mem_get_allocation_granularity(&unit, &wanted, kGpuGranularityMinimum);
      asked != kGpuSuccess || unit == 0) {
    return Error{ErrorCode::kUnsupported,
                 std::string("the GPU's memory cannot be shared between processes: ") +
                     api_.get_error_string(asked)};
  }
  unit_ = unit;
  if (const GpuResult loaded = driver_.module_load_data(&module_, kRowSumPtx);
      loaded != kGpuSuccess) {
    return failed(loaded, "load the kernel that sums rows");
  }
  const GpuResult found = driver_.module_get_function(&row_sum_, module_, "pdjob_row_sum");
  return found == kGpuSuccess ? ok() : Status(failed(found, "find the kernel that sums rows"));
}

Gpu::~Gpu() {
  if (!enter()) {
    return;
  }
  for (const GpuStreamMemory& memory : resting_) {
    api_.stream_destroy(memory.stream);
  }
  resting_.clear();
  for (const auto& [bytes, base] : pinned_) {
    api_.free_host(base);
  }
  if (module_ != nullptr) {
    driver_.module_unload(module_);
  }
}

// CUDA keeps the current device per thread.
Status Gpu::enter() const {
  const GpuResult set = api_.set_device(static_cast<int>(device_));
  return set == kGpuSuccess ? ok() : Status(failed(set, "use the GPU"));
}

Result<GpuMemory> Gpu::allocate(uint64_t bytes) {
  PDJOB_TRY_STATUS(enter());
  GpuMemory memory;
  memory.gpu_ = this;
  memory.bytes_ = round_up(bytes);
  const GpuAllocation wanted{.location = location()};
  if (const GpuResult made = driver_.mem_create(&memory.handle_, memory.bytes_, &wanted, 0);
      made != kGpuSuccess) {
    memory.handle_ = 0;
    return failed(made, "allocate memory");
  }
  if (const GpuResult made =
          driver_.mem_export_to_shareable_handle(&memory.fd_, memory.handle_, kGpuHandleFd, 0);
      made != kGpuSuccess) {
    memory.fd_ = -1;
    return failed(made, "share memory");
  }
  PDJOB_TRY_STATUS(map(memory));
  return memory;
}

Result<GpuMemory> Gpu::import(int fd, uint64_t bytes) {
  PDJOB_TRY_STATUS(enter());
  GpuMemory memory;
  memory.gpu_ = this;
  memory.bytes_ = round_up(bytes);
  // CUDA wants a descriptor in place of a pointer.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const handle = reinterpret_cast<void*>(static_cast<uintptr_t>(fd));
  if (const GpuResult made =
          driver_.mem_import_from_shareable_handle(&memory.handle_, handle, kGpuHandleFd);
      made != kGpuSuccess) {
    memory.handle_ = 0;
    return Error{ErrorCode::kInvalidArgument,
                 std::string("granted memory is not a GPU's: ") + api_.get_error_string(made)};
  }
  if (const Status mapped = map(memory); !mapped) {
    return Error{
        ErrorCode::kInvalidArgument,
        "granted memory is too small, or out of this GPU's reach: " + mapped.error().message};
  }
  return memory;
}

Status Gpu::map(GpuMemory& memory) {
  const GpuAccess access{.location = location()};
  GpuResult result = driver_.mem_address_reserve(&memory.address_, memory.bytes_, 0, 0, 0);
  if (result != kGpuSuccess) {
    memory.address_ = 0;
    return failed(result, "reserve addresses");
  }
  result = driver_.mem_map(memory.address_, memory.bytes_, 0, memory.handle_, 0);
  memory.mapped_ = result == kGpuSuccess;
  if (!memory.mapped_) {
    return failed(result, "map memory");
  }
  result = driver_.mem_set_access(memory.address_, memory.bytes_, &access, 1);
  return result == kGpuSuccess ? ok() : Status(failed(result, "reach memory"));
}

Status Gpu::copy(std::span<const GpuCopy> copies) {
  PDJOB_TRY(const std::unique_ptr<GpuQueue> queue, GpuQueue::open(*this));
  for (const GpuCopy& copy : copies) {
    if (const GpuResult result = api_.memcpy_async(copy.to, copy.from, copy.bytes, kGpuCopyDefault,
                                                   queue->memory_.stream);
        result != kGpuSuccess) {
      return failed(result, "copy");
    }
  }
  return queue->wait();
}

Result<GpuStreamMemory> Gpu::take_stream() {
  GpuStreamMemory memory;
  if (!resting_.empty()) {
    memory = std::move(resting_.back());
    resting_.pop_back();
  } else if (const GpuResult made =
                 api_.stream_create_with_flags(&memory.stream, kGpuStreamNonBlocking);
             made != kGpuSuccess) {
    return failed(made, "make a stream");
  }
  return memory;
}

Result<PinnedMemory> Gpu::pin(size_t bytes) {
  PinnedMemory pinned;
  pinned.bytes_ = std::bit_ceil(bytes);
  if (const auto rests = pinned_.find(pinned.bytes_); rests != pinned_.end()) {
    pinned.base_ = rests->second;
    pinned_.erase(rests);
  } else {
    PDJOB_TRY_STATUS(enter());
    void* memory = nullptr;
    if (const GpuResult made = api_.host_alloc(&memory, pinned.bytes_, kGpuHostAllocDefault);
        made != kGpuSuccess) {
      return failed(made, "pin memory");
    }
    pinned.base_ = static_cast<std::byte*>(memory);
  }
  pinned.gpu_ = this;
  return pinned;
}

}  // namespace pdjob
