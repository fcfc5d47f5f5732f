// GpuKv: the KV of a context in GPU memory that other processes can be given (common/gpu.h), which
// the library's own allocations are not. Loop-bound.
//
// libllama allocates all KV of a device as one buffer of the device's buffer type, a plain struct:
// while a Placement lives, the first buffer of that type that can hold the KV is ours. Only its
// place is: whatever is done with it is done by the functions of the library's own buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/gpu.h"
#include "common/result.h"
#include "engine/engine.h"

// NOLINTBEGIN(readability-identifier-naming): ggml's names.
struct ggml_backend_buffer;
struct ggml_backend_buffer_type;
// NOLINTEND(readability-identifier-naming)

namespace pdjob::engine {

class GpuKv {
 public:
  // Of sequences of `rows` rows.
  struct Shape {
    uint32_t sequences = 0;
    uint32_t rows = 0;
    std::span<const uint32_t> row_bytes;  // By window.
  };
  static Result<std::unique_ptr<GpuKv>> open(const std::string& cuda_library, uint32_t device,
                                             const Shape& shape);

  // For the time of one llama_init_from_model. The context must end before the GpuKv does.
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

  // Fills in shared_fd, shared_bytes, shared_offset and device. kUnsupported: the library has put
  // windows elsewhere.
  Status share_windows(std::span<KvRegion> regions) const;
  // Rows 0 .. rows-1, every window.
  Status copy_rows(const KvRegion& from, const KvRegion& to, uint32_t rows);

 private:
  GpuKv(std::unique_ptr<Gpu> gpu, uint64_t bytes_min)
      : gpu_(std::move(gpu)), bytes_min_(bytes_min) {}

  const std::unique_ptr<Gpu> gpu_;
  const uint64_t bytes_min_;
  GpuMemory memory_;  // None before libllama has asked for it.
};

}  // namespace pdjob::engine
