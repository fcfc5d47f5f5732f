// Rows to be handed over by benchmarks: memory in the layout of the default model, written as a
// prefill writes it. Value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvtransfer/kv_endpoint.h"

namespace pdjob::bench {

constexpr uint32_t kWindows = 60;    // SmolLM2-135M: K and V of 30 layers,
constexpr uint32_t kRowBytes = 204;  // 3 KV heads of 64 values in q8_0.
constexpr uint64_t kBytesPerToken = uint64_t{kWindows} * kRowBytes;

// One sealed memfd, window by window, all pages there. It lives as long as the process.
kvtransfer::Region make_region(uint32_t rows);

// Writes rows [first, first + count) of all windows; the value differs by `round`.
void fill(const kvtransfer::Region& region, uint32_t first, uint32_t count, uint64_t round);

// memcpy of rows [first, rows_max), window by window.
void copy(const kvtransfer::Region& from, const kvtransfer::Region& to, uint32_t first);

// Reads all rows, so that they are where a reader's core leaves them. A sum, so that it is done.
uint64_t read(const kvtransfer::Region& region);

}  // namespace pdjob::bench
