// BlockDisk: where a store keeps blocks behind its memory, and after its end. One place per block
// (store/slots.h), which the core chooses. Calls block. read() and write() may run at the same
// time, each on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/result.h"
#include "store/block_index.h"
#include "store/block_shape.h"
#include "store/slots.h"

namespace pdjob::store {

// A block on disk. Its `block.shape` is a number of the store that wrote it; `shape` is what it
// means.
struct StoredBlock {
  Block block;
  BlockShape shape;
  uint64_t digest = 0;
  SlotId slot;
};

class BlockDisk {
 public:
  virtual ~BlockDisk() = default;
  // Fills `rows` with what write() was given for this slot. They are not checked: a write may have
  // been torn.
  virtual Status read(SlotId slot, std::span<std::byte> rows) = 0;
  // Replaces what is in its slot. Whatever was written to its slab in another shape is lost.
  virtual Status write(const StoredBlock& block, std::span<const std::byte> rows) = 0;
};

}  // namespace pdjob::store
