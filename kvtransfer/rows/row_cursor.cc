#include "kvtransfer/rows/row_cursor.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::kvtransfer {

uint64_t bytes_per_row(std::span<const Window> windows) {
  uint64_t bytes = 0;
  for (const Window& window : windows) {
    bytes += window.row_bytes;
  }
  return bytes;
}

RowCursor::RowCursor(std::span<const Window> windows, RowRange range)
    : windows_(windows), range_(range), bytes_left_(bytes_per_row(windows) * range.count) {}

uint64_t RowCursor::window_bytes() const {
  return uint64_t{windows_[window_].row_bytes} * range_.count;
}

std::span<std::byte> RowCursor::next(size_t bytes_max) const {
  if (bytes_left_ == 0) {
    return {};
  }
  const Window& window = windows_[window_];
  std::byte* begin = window.base + uint64_t{window.row_bytes} * range_.first + offset_;
  return {begin, std::min<uint64_t>(bytes_max, window_bytes() - offset_)};
}

size_t RowCursor::gather(std::span<iovec> pieces, size_t bytes_max) const {
  RowCursor ahead = *this;
  size_t filled = 0;
  while (filled < pieces.size() && bytes_max > 0 && ahead.bytes_left_ > 0) {
    const std::span<std::byte> piece = ahead.next(bytes_max);
    pieces[filled++] = {piece.data(), piece.size()};
    bytes_max -= piece.size();
    ahead.advance(piece.size());
  }
  return filled;
}

void RowCursor::advance(size_t bytes) {
  PDJOB_CHECK(bytes <= bytes_left_, bytes, bytes_left_);
  bytes_left_ -= bytes;
  offset_ += bytes;
  while (bytes_left_ > 0 && offset_ >= window_bytes()) {
    offset_ -= window_bytes();
    ++window_;
  }
}

}  // namespace pdjob::kvtransfer
