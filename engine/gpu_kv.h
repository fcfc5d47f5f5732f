// GpuKv: puts the KV of a context in GPU memory that can be shared with other processes
// (gpu/gpu.h). The library's own allocations cannot be shared. Loop-bound.
//
// libllama allocates all KV of a device as one buffer of the device's buffer type, a plain struct.
// While a Placement lives, the first buffer of that type that can hold the KV gets our memory. All
// operations on it still use the functions of the library's own buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/result.h"
#include "engine/engine.h"
#include "gpu/gpu.h"

// NOLINTBEGIN(readability-identifier-naming): ggml's names.
struct ggml_backend_buffer;
struct ggml_backend_buffer_type;
// NOLINTEND(readability-identifier-naming)

namespace pdjob::engine {

class GpuKv {
 public:
  // The size of the KV: `sequences` sequences of `rows` rows each.
  struct Shape {
    uint32_t sequences = 0;
    uint32_t rows = 0;
    std::span<const uint32_t> row_bytes;  // By window.
  };
  static Result<std::unique_ptr<GpuKv>> open(const std::string& cuda_library, uint32_t device,
                                             const Shape& shape);

  // Keep it alive during one llama_init_from_model. The context must be destroyed before the GpuKv.
  // Requires: one at a time in a process.
  class Placement {
   public:
    Placement(GpuKv& kv, ggml_backend_buffer_type* type);
    ~Placement();
    Placement(const Placement&) = delete;
    Placement& operator=(const Placement&) = delete;

   private:
    static ggml_backend_buffer* allocate(ggml_backend_buffer_type* type, size_t bytes);
    static void* base(ggml_backend_buffer* buffer);
    static void clear(ggml_backend_buffer* buffer, uint8_t value);

    ggml_backend_buffer_type* const type_;
  };

  // Sets shared_fd, shared_bytes, shared_offset and device. Fails with kUnsupported if the library
  // has put windows elsewhere.
  Status share_windows(std::span<KvRegion> regions) const;
  // Copies rows 0 .. rows-1 of every window.
  Status copy_rows(const KvRegion& from, const KvRegion& to, uint32_t rows);

 private:
  GpuKv(std::unique_ptr<Gpu> gpu, uint64_t bytes_min)
      : gpu_(std::move(gpu)), bytes_min_(bytes_min) {}

  const std::unique_ptr<Gpu> gpu_;
  const uint64_t bytes_min_;
  GpuMemory memory_;  // Empty until libllama allocates it.
};

}  // namespace pdjob::engine
