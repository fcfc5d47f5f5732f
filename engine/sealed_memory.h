// SealedMemory: anonymous memory behind a file descriptor. Another process may map it but never
// resize it, so it cannot kill us with SIGBUS. Owns the descriptor. Value (move-only).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/files/fd.h"
#include "common/result.h"

namespace pdjob::engine {

class SealedMemory {
 public:
  // Creates `bytes` bytes of zeroed memory, sealed against shrinking, growing and further seals.
  // Fails with kUnsupported if the kernel refuses.
  static Result<SealedMemory> create(const char* name, uint64_t bytes);

  int fd() const { return fd_.get(); }
  uint64_t bytes() const { return bytes_; }

  // Replaces the pages at `address` by bytes [offset, offset + bytes) of this memory, with all
  // pages present. Requires: all three arguments are multiples of the page size.
  Status map_over(std::byte* address, uint64_t offset, uint64_t bytes) const;

 private:
  Fd fd_;
  uint64_t bytes_ = 0;
};

}  // namespace pdjob::engine
