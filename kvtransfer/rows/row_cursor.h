// Rows [first, first + count) of a set of windows, as one sequence of bytes. The canonical order,
// used to hash and to stream, is window by window, and row by row within a window. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/uio.h>

#include "kvtransfer/rows/region.h"

namespace pdjob::kvtransfer {

struct RowRange {
  uint32_t first = 0;
  uint32_t count = 0;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

uint64_t bytes_per_row(std::span<const Window> windows);

class RowCursor {
 public:
  RowCursor() = default;
  // The windows outlive the cursor.
  RowCursor(std::span<const Window> windows, RowRange range);

  uint64_t bytes_left() const { return bytes_left_; }
  // Returns the next contiguous bytes, at most `bytes_max`; empty at the end.
  std::span<std::byte> next(size_t bytes_max) const;
  // Sets the next pieces, in order, at most `bytes_max` together. Returns the number of pieces.
  size_t gather(std::span<iovec> pieces, size_t bytes_max) const;
  // Requires: bytes <= bytes_left().
  void advance(size_t bytes);

 private:
  uint64_t window_bytes() const;

  std::span<const Window> windows_;
  RowRange range_;
  size_t window_ = 0;
  uint64_t offset_ = 0;  // Within the range's bytes of windows_[window_].
  uint64_t bytes_left_ = 0;
};

}  // namespace pdjob::kvtransfer
