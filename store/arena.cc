#include "store/arena.h"

#include <cerrno>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

#include "common/check.h"

namespace pdjob::store {

Arena::~Arena() {
  for (const auto& [number, slab] : slabs_) {
    ::munmap(slab.base, slab_bytes_);
  }
}

Result<const Arena::Slab*> Arena::open(uint32_t number) {
  if (const auto known = slabs_.find(number); known != slabs_.end()) {
    return &known->second;
  }
  PDJOB_TRY(engine::SealedMemory memory, engine::SealedMemory::create("pdjob-store", slab_bytes_));
  void* base = ::mmap(nullptr, slab_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
  if (base == MAP_FAILED) {
    return system_error("cannot map a slab of the store");
  }
  Slab& slab = slabs_[number];
  slab = {.memory = std::move(memory), .base = static_cast<std::byte*>(base)};
  return &slab;
}

Result<kvtransfer::Region> Arena::allocate(const Place& place, const BlockShape& shape) {
  PDJOB_TRY(const Slab* slab, open(place.slot.slab));
  int failed = 0;
  do {
    failed = ::fallocate(slab->memory.fd(), 0, static_cast<off_t>(place.offset),
                         static_cast<off_t>(slot_bytes(shape)));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) {
    return system_error("cannot allocate memory for a block");
  }
  return region(place, shape);
}

kvtransfer::Region Arena::region(const Place& place, const BlockShape& shape) const {
  const auto found = slabs_.find(place.slot.slab);
  PDJOB_CHECK(found != slabs_.end(), place.slot.slab);
  const Slab& slab = found->second;
  kvtransfer::Region region{
      .rows_max = shape.rows, .shared_fd = slab.memory.fd(), .shared_bytes = slab_bytes_};
  const std::vector<uint64_t> offsets = window_offsets(shape);
  for (size_t window = 0; window < offsets.size(); ++window) {
    const uint64_t offset = place.offset + offsets[window];
    region.windows.push_back({.base = slab.base + offset,
                              .shared_offset = offset,
                              .row_bytes = shape.row_bytes[window]});
  }
  return region;
}

std::span<std::byte> Arena::bytes(const Place& place, const BlockShape& shape) const {
  const auto found = slabs_.find(place.slot.slab);
  PDJOB_CHECK(found != slabs_.end(), place.slot.slab);
  return {found->second.base + place.offset, slot_bytes(shape)};
}

}  // namespace pdjob::store
