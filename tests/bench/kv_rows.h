// Rows for the KV benchmarks: memory in the layout of the default model, written as a prefill
// writes it. Value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvtransfer/kv_endpoint.h"

namespace pdjob::bench {

constexpr uint32_t kWindows = 60;    // SmolLM2-135M: K and V of 30 layers,
constexpr uint32_t kRowBytes = 204;  // 3 KV heads of 64 values in q8_0.
constexpr uint64_t kBytesPerToken = uint64_t{kWindows} * kRowBytes;

// A model's windows, and the bytes of a row in each.
struct RowShape {
  uint32_t windows = kWindows;
  uint32_t row_bytes = kRowBytes;
  uint64_t bytes_per_token() const { return uint64_t{windows} * row_bytes; }
};

// Makes one sealed memfd, window by window, with all pages present. It lives as long as the
// process.
kvtransfer::Region make_region(uint32_t rows, const RowShape& shape = {});

// Writes rows [first, first + count) of all windows; the value differs by `round`.
void fill(const kvtransfer::Region& region, uint32_t first, uint32_t count, uint64_t round);

// Copies rows [first, rows_max) with memcpy, window by window.
void copy(const kvtransfer::Region& from, const kvtransfer::Region& to, uint32_t first);

// Reads all rows into the caches of the reader's core. Returns a sum, so the compiler keeps the
// reads.
uint64_t read(const kvtransfer::Region& region);

}  // namespace pdjob::bench
