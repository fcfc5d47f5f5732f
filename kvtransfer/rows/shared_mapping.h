// Mappings of peers' memfds. They are checked on arrival and kept for the next grant of the same
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "common/files/fd.h"
#include "common/result.h"

namespace pdjob::kvtransfer {

// One mapped memfd, writable by its owner and by us. Loop-bound.
class SharedMapping {
 public:
  SharedMapping(std::byte* base, uint64_t bytes);
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  ~SharedMapping();

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

  // Maps the pages of [offset, offset + bytes) that are not mapped yet, all at once. A page that a
  // copy touches first costs as much as copying it several times. Returns the number of bytes newly
  // mapped. Requires: the range lies in the mapping.
  uint64_t touch(uint64_t offset, uint64_t bytes);

 private:
  std::byte* base_;
  uint64_t bytes_;
  std::vector<bool> touched_;  // One flag per piece.
};

// Evicts the least recently used mapping. An evicted mapping lives as long as it has a user.
// Loop-bound.
class MappingCache {
 public:
  explicit MappingCache(size_t mappings_max) : mappings_max_(mappings_max) {}

  // Returns the mapping of `bytes` of `memfd`. No page of a new one is touched.
  // - kUnsupported: it is not sealed against shrinking. Its owner could kill us with SIGBUS.
  // - kInvalidArgument: it is smaller than announced.
  Result<std::shared_ptr<SharedMapping>> map(const Fd& memfd, uint64_t bytes);

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t device = 0;
    uint64_t inode = 0;  // The kernel cannot reuse it while the mapping holds the file.
    std::shared_ptr<SharedMapping> mapping;
  };

  size_t mappings_max_;
  std::list<Entry> entries_;  // Most recently used first.
};

}  // namespace pdjob::kvtransfer
