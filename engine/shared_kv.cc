#include "engine/shared_kv.h"

#include <cstring>
#include <numeric>
#include <string>

#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <sys/mman.h>

#include "common/check.h"

namespace pdjob::engine {
namespace {

constexpr uint32_t kPageBytes = 4096;
constexpr uint32_t kLibraryRows = 256;  // libllama rounds the rows of a sequence up to this.
constexpr size_t kBigBytes = size_t{1} << 20;
constexpr size_t kMappingsMax = 32768;  // Half of Linux's default vm.max_map_count.

using AllocateBuffer = ggml_backend_buffer_t (*)(ggml_backend_buffer_type_t, size_t);
AllocateBuffer allocate_unaligned = nullptr;  // The function that PageAlignedBuffers replaced.

void unmap_buffer(ggml_backend_buffer_t buffer) { munmap(buffer->context, buffer->size); }

// libllama clears its KV while it makes a context. The pages of a new mapping are zero already, and
// touching them all would cost memory and time.
void clear_buffer(ggml_backend_buffer_t buffer, uint8_t value) {
  const bool is_new = allocate_unaligned != nullptr;
  if (value != 0 || !is_new) {
    std::memset(buffer->context, value, buffer->size);
  }
}

ggml_backend_buffer_t allocate_pages(ggml_backend_buffer_type_t type, size_t bytes) {
  if (bytes < kBigBytes) {
    return allocate_unaligned(type, bytes);
  }
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    return nullptr;
  }
  ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(pages, bytes);
  buffer->iface.free_buffer = unmap_buffer;
  buffer->iface.clear = clear_buffer;
  return buffer;
}

bool is_page_aligned(uint64_t value) { return value % kPageBytes == 0; }

Status check_geometry(std::span<const KvRegion> regions) {
  if (regions.size() * regions.front().windows.size() > kMappingsMax) {
    return Error{ErrorCode::kUnsupported,
                 "more than " + std::to_string(kMappingsMax) + " mappings"};
  }
  for (const KvRegion& region : regions) {
    for (const KvWindow& window : region.windows) {
      if (!is_page_aligned(reinterpret_cast<uintptr_t>(window.base)) ||
          !is_page_aligned(uint64_t{region.rows_max} * window.row_bytes)) {
        return Error{ErrorCode::kUnsupported, "KV windows are not whole pages"};
      }
    }
  }
  return ok();
}

Result<SealedMemory> share(KvRegion& region) {
  uint64_t bytes = 0;
  for (const KvWindow& window : region.windows) {
    bytes += uint64_t{region.rows_max} * window.row_bytes;
  }
  PDJOB_TRY(SealedMemory memory, SealedMemory::create("pdjob-kv", bytes));
  uint64_t offset = 0;
  for (KvWindow& window : region.windows) {
    const uint64_t window_bytes = uint64_t{region.rows_max} * window.row_bytes;
    PDJOB_TRY_STATUS(memory.map_over(window.base, offset, window_bytes));
    window.shared_offset = offset;
    offset += window_bytes;
  }
  region.shared_fd = memory.fd();
  region.shared_bytes = bytes;
  return memory;
}

}  // namespace

PageAlignedBuffers::PageAlignedBuffers() {
  PDJOB_CHECK(allocate_unaligned == nullptr);
  ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
  allocate_unaligned = type->iface.alloc_buffer;
  type->iface.alloc_buffer = allocate_pages;
}

PageAlignedBuffers::~PageAlignedBuffers() {
  ggml_backend_cpu_buffer_type()->iface.alloc_buffer = allocate_unaligned;
  allocate_unaligned = nullptr;
}

uint32_t round_up_rows(uint32_t rows, std::span<const uint32_t> row_bytes) {
  uint32_t unit = kLibraryRows;
  for (const uint32_t bytes : row_bytes) {
    unit = std::lcm(unit, kPageBytes / std::gcd(bytes, kPageBytes));
  }
  return (rows + unit - 1) / unit * unit;
}

Result<std::vector<SealedMemory>> share_windows(std::span<KvRegion> regions) {
  PDJOB_TRY_STATUS(check_geometry(regions));
  std::vector<SealedMemory> memories;
  for (KvRegion& region : regions) {
    auto memory = share(region);
    if (!memory.has_value()) {
      // Windows that are already mapped keep working. Without a descriptor they count as private
      // memory.
      for (KvRegion& each : regions) {
        each.shared_fd = -1;
        each.shared_bytes = 0;
      }
      return memory.error();
    }
    memories.push_back(std::move(*memory));
  }
  return memories;
}

void copy_rows(const KvRegion& from, const KvRegion& to, uint32_t rows) {
  for (size_t window = 0; window < from.windows.size(); ++window) {
    std::memcpy(to.windows[window].base, from.windows[window].base,
                size_t{rows} * from.windows[window].row_bytes);
  }
}

}  // namespace pdjob::engine
