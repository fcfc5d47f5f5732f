// xxh3-64 over the bytes of rows, fed piece by piece: it finds wrong, stale or missing rows, not a
// forger. The only door to xxhash. Value (move only).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kvtransfer/row_cursor.h"

namespace pdjob::kvtransfer {

class RowDigest {
 public:
  RowDigest();

  void update(std::span<const std::byte> bytes);
  // Of everything so far; more may follow.
  uint64_t value() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};

// Hashes the next `bytes` of the cursor and moves it past them. Requires: bytes <=
// cursor.bytes_left().
void hash_and_advance(RowDigest& digest, RowCursor& cursor, size_t bytes);

}  // namespace pdjob::kvtransfer
