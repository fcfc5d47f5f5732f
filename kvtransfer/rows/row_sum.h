// The sum of gpu/row_sum_kernel.cu over rows in the host's memory, fed piece by piece. Both ends
// use this digest if the rows of either end may be in GPU memory. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvtransfer/rows/row_cursor.h"
#include "kvtransfer/rows/vector_code.h"

namespace pdjob::kvtransfer {

class RowSum {
 public:
  explicit RowSum(VectorCode code = fastest_code()) : code_(code) {}

  // Begins a range: all of its rows are fed next, in canonical order. The windows outlive that.
  void begin(std::span<const Window> windows, RowRange range);
  void update(std::span<const std::byte> bytes);
  // Sum of all complete ranges.
  uint64_t value() const { return sum_; }

 private:
  void add_in_row(std::span<const std::byte> bytes);
  void add_byte(std::byte byte);
  void end_word();
  void end_row();
  uint64_t place() const;

  VectorCode code_;
  uint64_t sum_ = 0;
  std::span<const Window> windows_;
  RowRange range_;
  size_t window_ = 0;
  uint32_t row_ = 0;
  uint32_t in_row_ = 0;  // Bytes of the row so far.
  uint64_t word_ = 0;    // The bytes after the row's last whole word.
};

}  // namespace pdjob::kvtransfer
