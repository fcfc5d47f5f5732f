// Arena: the memory of a store, by slabs. A slab is one sealed memfd, so that peers on this machine
// write blocks directly into it. It is made when its first block comes, and stays until the end,
// because peers keep it mapped. Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "common/result.h"
#include "engine/sealed_memory.h"
#include "kvtransfer/rows/region.h"
#include "store/block_shape.h"
#include "store/block_store.h"

namespace pdjob::store {

class Arena {
 public:
  explicit Arena(uint64_t slab_bytes) : slab_bytes_(slab_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // The region of a block that is about to be written. Its pages are allocated here: they count for
  // this process, and a lack of memory is an error and no signal. Fails if there are none.
  Result<kvtransfer::Region> allocate(const Place& place, const BlockShape& shape);
  // The region of a block that was written. Requires: allocate() returned it before.
  kvtransfer::Region region(const Place& place, const BlockShape& shape) const;
  // The same as bytes: slot_bytes(shape).
  std::span<std::byte> bytes(const Place& place, const BlockShape& shape) const;

 private:
  struct Slab {
    engine::SealedMemory memory;
    std::byte* base = nullptr;
  };
  Result<const Slab*> open(uint32_t number);

  const uint64_t slab_bytes_;
  std::map<uint32_t, Slab> slabs_;
};

}  // namespace pdjob::store
