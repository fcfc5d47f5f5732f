#include "store/block_shape.h"

#include <algorithm>
#include <numeric>

#include "common/limits.h"

namespace pdjob::store {
namespace {

uint64_t aligned_window(const BlockShape& shape, uint32_t row_bytes) {
  const uint64_t bytes = uint64_t{shape.rows} * row_bytes;
  return (bytes + kWindowAlignment - 1) / kWindowAlignment * kWindowAlignment;
}

}  // namespace

bool is_sound(const BlockShape& shape) {
  const uint64_t row = std::accumulate(shape.row_bytes.begin(), shape.row_bytes.end(), uint64_t{0});
  return shape.rows > 0 && !shape.row_bytes.empty() &&
         shape.row_bytes.size() <= limits::kWindowsMax && row <= limits::kTransferRowBytesMax &&
         std::ranges::find(shape.row_bytes, 0U) == shape.row_bytes.end();
}

std::vector<uint64_t> window_offsets(const BlockShape& shape) {
  std::vector<uint64_t> offsets;
  offsets.reserve(shape.row_bytes.size());
  uint64_t offset = 0;
  for (const uint32_t row_bytes : shape.row_bytes) {
    offsets.push_back(offset);
    offset += aligned_window(shape, row_bytes);
  }
  return offsets;
}

uint64_t slot_bytes(const BlockShape& shape) {
  uint64_t bytes = 0;
  for (const uint32_t row_bytes : shape.row_bytes) {
    bytes += aligned_window(shape, row_bytes);
  }
  return bytes;
}

}  // namespace pdjob::store
