// Mappings of peers' memfds: checked when they come, kept for the next grant of the same memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "common/result.h"
#include "kvtransfer/unique_fd.h"

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

  // Maps the pages of [offset, offset + bytes) that are not mapped yet, all at once: a page that is
  // first touched by a copy costs as much as copying it several times. How many bytes were not.
  // Requires: they lie in the mapping.
  uint64_t touch(uint64_t offset, uint64_t bytes);

 private:
  std::byte* base_;
  uint64_t bytes_;
  std::vector<bool> touched_;  // Piece by piece.
};

// Least recently used mappings go first; one in use lives on in its user's hands. Loop-bound.
class MappingCache {
 public:
  explicit MappingCache(size_t mappings_max) : mappings_max_(mappings_max) {}

  // The mapping of `bytes` of `memfd`; nothing of a new one is touched. kUnsupported: it is not
  // sealed against shrinking, so its owner could kill us with SIGBUS. kInvalidArgument: it is
  // smaller than announced.
  Result<std::shared_ptr<SharedMapping>> map(const UniqueFd& memfd, uint64_t bytes);

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t device = 0;
    uint64_t inode = 0;  // Cannot be reused while the mapping holds the file.
    std::shared_ptr<SharedMapping> mapping;
  };

  size_t mappings_max_;
  std::list<Entry> entries_;  // Most recently used first.
};

}  // namespace pdjob::kvtransfer
