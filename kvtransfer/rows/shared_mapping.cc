#include "kvtransfer/rows/shared_mapping.h"

#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/limits.h"

namespace pdjob::kvtransfer {

namespace {

constexpr uint64_t kPieceBytes = 256 * limits::kKiB;
#ifdef MADV_POPULATE_READ
constexpr int kPopulate = MADV_POPULATE_READ;
#else
constexpr int kPopulate = 22;
#endif

}  // namespace

SharedMapping::SharedMapping(std::byte* base, uint64_t bytes)
    : base_(base), bytes_(bytes), touched_((bytes + kPieceBytes - 1) / kPieceBytes) {}

uint64_t SharedMapping::touch(uint64_t offset, uint64_t bytes) {
  uint64_t touched = 0;
  for (uint64_t piece = offset / kPieceBytes; piece * kPieceBytes < offset + bytes; ++piece) {
    if (touched_[piece]) {
      continue;
    }
    const uint64_t begin = piece * kPieceBytes;
    const uint64_t length = std::min(kPieceBytes, bytes_ - begin);
    // Populate for reading: pages of shared memory are then writable at once, and one fault maps
    // many. Before Linux 5.14 this call fails, and the copy touches the pages itself.
    ::madvise(base_ + begin, length, kPopulate);
    touched_[piece] = true;
    touched += length;
  }
  return touched;
}

SharedMapping::~SharedMapping() { ::munmap(base_, bytes_); }

Result<std::shared_ptr<SharedMapping>> MappingCache::map(const Fd& memfd, uint64_t bytes) {
  const int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Error{ErrorCode::kUnsupported, "granted memory is not a memfd sealed against shrinking"};
  }
  struct stat file{};
  if (::fstat(memfd.get(), &file) != 0 || bytes == 0 ||
      static_cast<uint64_t>(file.st_size) < bytes) {
    return Error{ErrorCode::kInvalidArgument, "granted memory is smaller than announced"};
  }
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.device == file.st_dev && entry.inode == file.st_ino;
  });
  if (known != entries_.end() && known->mapping->bytes() >= bytes) {
    entries_.splice(entries_.begin(), entries_, known);
    return known->mapping;
  }
  if (known != entries_.end()) {
    entries_.erase(known);
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (base == MAP_FAILED) {
    return system_error("cannot map granted memory");
  }
  entries_.push_front({file.st_dev, file.st_ino,
                       std::make_shared<SharedMapping>(static_cast<std::byte*>(base), bytes)});
  std::shared_ptr<SharedMapping> mapping = entries_.front().mapping;
  if (entries_.size() > mappings_max_) {
    entries_.pop_back();
  }
  return mapping;
}

}  // namespace pdjob::kvtransfer
