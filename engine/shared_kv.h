// Puts the KV memory of a context behind one sealed memfd per sequence. So a prefill worker on the
// same machine can write the rows of the sequence it was granted, and no others. Loop-bound.
//
// libllama allocates its KV through a buffer type that is a plain struct. During one
// llama_init_from_model, PageAlignedBuffers makes it return page-aligned mappings. share_windows
// then maps the memfds over them in place, so every pointer that libllama holds stays valid.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "engine/engine.h"
#include "engine/sealed_memory.h"

namespace pdjob::engine {

// While one lives, ggml's big CPU buffers are page-aligned mappings. Each is unmapped when ggml
// frees the buffer, at any later time. Requires: one at a time in a process.
class PageAlignedBuffers {
 public:
  PageAlignedBuffers();
  ~PageAlignedBuffers();
  PageAlignedBuffers(const PageAlignedBuffers&) = delete;
  PageAlignedBuffers& operator=(const PageAlignedBuffers&) = delete;
};

// The smallest row count >= `rows` with which every window fills whole pages and libllama's padding
// holds.
uint32_t round_up_rows(uint32_t rows, std::span<const uint32_t> row_bytes);

// Backs the windows of each region by its own memfd and sets shared_fd, shared_bytes and
// shared_offset. Returns the memfds, by region. On failure, the regions stay private memory.
// Requires: the windows have rows_max rows each, are page-aligned and were never used.
Result<std::vector<SealedMemory>> share_windows(std::span<KvRegion> regions);

// Copies rows 0 .. rows-1 of every window.
void copy_rows(const KvRegion& from, const KvRegion& to, uint32_t rows);

}  // namespace pdjob::engine
