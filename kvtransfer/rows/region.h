// The memory that rows are read from and written to. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pdjob::kvtransfer {

// One strided array of rows. The memory belongs to the caller and outlives every transfer that
// names it.
struct Window {
  std::byte* base = nullptr;   // Address of row 0: the GPU's address if it is in GPU memory.
  uint64_t shared_offset = 0;  // Offset of row 0 in Region::shared_fd.
  uint32_t row_bytes = 0;
};

// Rows that move together: row r of a transfer is row r of every window. Window counts and row
// sizes must be equal on both ends.
struct Region {
  std::vector<Window> windows;
  uint32_t rows_max = 0;
  // Not owned. Host memory: the sealed memfd that holds all windows, so that shm may write it
  // directly. GPU memory: its handle, for cuda_ipc. -1: private memory.
  int shared_fd = -1;
  uint64_t shared_bytes = 0;
  uint64_t shared_id = 0;  // Identifies GPU memory in this process; never reused.
  // GPU that holds the memory: the endpoint's own. Empty: the host holds it.
  std::optional<uint32_t> device;
};

}  // namespace pdjob::kvtransfer
