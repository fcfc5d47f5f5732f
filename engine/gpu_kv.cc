#include "engine/gpu_kv.h"

#include <numeric>
#include <vector>

#include <ggml-backend-impl.h>
#include <ggml.h>

#include "common/check.h"
#include "common/log.h"

namespace pdjob::engine {
namespace {

// Bytes of the library's buffer, which only provides the functions for ours. It stays unused.
constexpr size_t kUnusedBytes = 256;

using AllocateBuffer = ggml_backend_buffer_t (*)(ggml_backend_buffer_type_t, size_t);
GpuKv* placed = nullptr;
AllocateBuffer allocate_normally = nullptr;  // The function that Placement replaced.

}  // namespace

// --- GpuKv::Placement

GpuKv::Placement::Placement(GpuKv& kv, ggml_backend_buffer_type* type) : type_(type) {
  PDJOB_CHECK(placed == nullptr);
  placed = &kv;
  allocate_normally = std::exchange(type->iface.alloc_buffer, allocate);
}

GpuKv::Placement::~Placement() {
  type_->iface.alloc_buffer = allocate_normally;
  placed = nullptr;
}

// CUDA's functions find the device in the buffer's context, and recognise their own buffers by
// free_buffer, so both stay. Only two functions use the address of the memory; these are replaced.
ggml_backend_buffer* GpuKv::Placement::allocate(ggml_backend_buffer_type* type, size_t bytes) {
  if (bytes < placed->bytes_min_ || placed->memory_.bytes() > 0) {
    return allocate_normally(type, bytes);
  }
  auto memory = placed->gpu_->allocate(bytes);
  if (!memory.has_value()) {
    log::error("the GPU has no " + std::to_string(bytes >> 20) +
               " MiB for KV: " + memory.error().message);
    return nullptr;
  }
  ggml_backend_buffer* const buffer = allocate_normally(type, kUnusedBytes);
  if (buffer != nullptr) {
    placed->memory_ = std::move(*memory);
    buffer->size = bytes;
    buffer->iface.get_base = base;
    buffer->iface.clear = clear;
  }
  return buffer;
}

// libllama calls base() and clear() only while it places tensors.
void* GpuKv::Placement::base(ggml_backend_buffer* /*buffer*/) {
  PDJOB_CHECK(placed != nullptr);
  return placed->memory_.base();
}

void GpuKv::Placement::clear(ggml_backend_buffer* buffer, uint8_t value) {
  ggml_tensor whole{};
  whole.data = base(buffer);
  buffer->iface.memset_tensor(buffer, &whole, value, 0, buffer->size);
}

// --- GpuKv

Result<std::unique_ptr<GpuKv>> GpuKv::open(const std::string& cuda_library, uint32_t device,
                                           const Shape& shape) {
  PDJOB_TRY(std::unique_ptr<Gpu> gpu, Gpu::open(cuda_library, device));
  const uint64_t bytes_of_row =
      std::accumulate(shape.row_bytes.begin(), shape.row_bytes.end(), uint64_t{0});
  return std::unique_ptr<GpuKv>(
      new GpuKv(std::move(gpu), uint64_t{shape.sequences} * shape.rows * bytes_of_row));
}

Status GpuKv::share_windows(std::span<KvRegion> regions) const {
  const std::byte* const begin = memory_.base();
  for (KvRegion& region : regions) {
    for (KvWindow& window : region.windows) {
      const uint64_t bytes = uint64_t{region.rows_max} * window.row_bytes;
      if (memory_.bytes() < bytes || window.base < begin ||
          window.base > begin + (memory_.bytes() - bytes)) {
        return Error{ErrorCode::kUnsupported,
                     "engine.gpu is true, but libllama has not put this model's KV into one "
                     "piece of the GPU's memory"};
      }
      window.shared_offset = static_cast<uint64_t>(window.base - begin);
    }
    region.device = gpu_->device();
    region.shared_fd = memory_.fd();
    region.shared_bytes = memory_.bytes();
  }
  return ok();
}

Status GpuKv::copy_rows(const KvRegion& from, const KvRegion& to, uint32_t rows) {
  std::vector<GpuCopy> copies;
  for (size_t window = 0; window < from.windows.size(); ++window) {
    copies.push_back({.to = to.windows[window].base,
                      .from = from.windows[window].base,
                      .bytes = size_t{rows} * from.windows[window].row_bytes});
  }
  return gpu_->copy(copies);
}

}  // namespace pdjob::engine
