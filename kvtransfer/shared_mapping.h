// Mappings of peers' memfds: checked when they come, kept for the next grant of the same memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "common/result.h"
#include "kvtransfer/unique_fd.h"

namespace pdjob::kvtransfer {

// One mapped memfd, writable by its owner and by us. Value (not movable).
class SharedMapping {
 public:
  SharedMapping(std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  ~SharedMapping();

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  uint64_t bytes_;
};

// Least recently used mappings go first; one in use lives on in its user's hands. Loop-bound.
class MappingCache {
 public:
  explicit MappingCache(size_t mappings_max) : mappings_max_(mappings_max) {}

  // The mapping of `bytes` of `memfd`. kUnsupported: it is not sealed against shrinking, so its
  // owner could kill us with SIGBUS. kInvalidArgument: it is smaller than announced.
  Result<std::shared_ptr<const SharedMapping>> map(const UniqueFd& memfd, uint64_t bytes);

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t device = 0;
    uint64_t inode = 0;  // Cannot be reused while the mapping holds the file.
    std::shared_ptr<const SharedMapping> mapping;
  };

  size_t mappings_max_;
  std::list<Entry> entries_;  // Most recently used first.
};

}  // namespace pdjob::kvtransfer
