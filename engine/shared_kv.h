// Puts the KV memory of a context behind one sealed memfd per sequence, so that a prefill worker of
// the same machine can write the rows of the sequence it was granted, and no other. Loop-bound.
//
// libllama chooses where its KV lives, but only through a buffer type that is a plain struct: for
// the time of one llama_init_from_model PageAlignedBuffers makes it hand out page-aligned mappings,
// over which share_windows then maps the memfds, page by page in place, so that every pointer
// libllama holds stays valid.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "engine/engine.h"
#include "engine/sealed_memory.h"

namespace pdjob::engine {

// While one lives, ggml's big CPU buffers are page-aligned mappings; each is unmapped when ggml
// frees the buffer, at any time later. Requires: one at a time in a process.
class PageAlignedBuffers {
 public:
  PageAlignedBuffers();
  ~PageAlignedBuffers();
  PageAlignedBuffers(const PageAlignedBuffers&) = delete;
  PageAlignedBuffers& operator=(const PageAlignedBuffers&) = delete;
};

// Smallest row count >= `rows` with which every window is whole pages and libllama's own padding
// holds.
uint32_t round_up_rows(uint32_t rows, std::span<const uint32_t> row_bytes);

// Backs each region's windows (rows_max rows each, page-aligned, untouched so far) by a memfd of
// its own and fills in shared_fd, shared_bytes and shared_offset. Returns the memfds, by region. On
// failure the regions are private memory, as before.
Result<std::vector<SealedMemory>> share_windows(std::span<KvRegion> regions);

// Rows 0 .. rows-1, every window.
void copy_rows(const KvRegion& from, const KvRegion& to, uint32_t rows);

}  // namespace pdjob::engine
