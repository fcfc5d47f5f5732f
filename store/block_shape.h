// BlockShape: how large the rows of a block are. Blocks of one model have one shape. Value.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "common/id.h"

namespace pdjob::store {

struct BlockShape {
  uint32_t rows = 0;
  std::vector<uint32_t> row_bytes;  // By window.
  friend auto operator<=>(const BlockShape&, const BlockShape&) = default;
};

// A shape that a store has met: dense, never reused.
using ShapeId = StrongId<struct ShapeTag, uint32_t>;

// False: no region has this shape (limits::kWindowsMax, limits::kTransferRowBytesMax).
bool is_sound(const BlockShape& shape);

// A block in memory: window behind window, each at the next multiple of kWindowAlignment.
// Requires: is_sound(shape).
inline constexpr uint64_t kWindowAlignment = 64;
std::vector<uint64_t> window_offsets(const BlockShape& shape);
uint64_t slot_bytes(const BlockShape& shape);

}  // namespace pdjob::store
