// SealedMemory: anonymous memory behind a file descriptor that another process may map but never
// resize, so that whoever holds it cannot make us die of SIGBUS. Owns the descriptor. Value
// (move-only).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/result.h"

namespace pdjob::engine {

class SealedMemory {
 public:
  // Zeroed memory of `bytes`, sealed against shrinking, growing and further seals. kUnsupported:
  // the kernel will not.
  static Result<SealedMemory> create(const char* name, uint64_t bytes);

  SealedMemory() = default;
  SealedMemory(SealedMemory&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}
  SealedMemory& operator=(SealedMemory&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SealedMemory();

  int fd() const { return fd_; }
  uint64_t bytes() const { return bytes_; }

  // Replaces the pages at `address` by bytes [offset, offset + bytes) of this memory, all of them
  // present. Requires: pages throughout.
  Status map_over(std::byte* address, uint64_t offset, uint64_t bytes) const;

 private:
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace pdjob::engine
