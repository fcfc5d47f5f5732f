#include "tests/simulation/kv_rows.h"

#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/check.h"
#include "common/random.h"

namespace pdjob::simulation {
namespace {

uint64_t word(uint64_t owner, size_t window, uint32_t row, size_t at) {
  return mix(owner ^ uint64_t{window} << 56 ^ uint64_t{row} << 40 ^ at << 32);
}

}  // namespace

KvRows::KvRows(Memory memory) {
  for (const uint32_t row_bytes : kKvRowBytes) {
    region_.windows.push_back({.shared_offset = bytes_, .row_bytes = row_bytes});
    bytes_ += size_t{row_bytes} * kKvRowsMax;
  }
  region_.rows_max = kKvRowsMax;
  if (memory == Memory::kShared) {
    region_.shared_fd = ::memfd_create("sim-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    region_.shared_bytes = bytes_;
    PDJOB_CHECK(::ftruncate(region_.shared_fd, static_cast<off_t>(bytes_)) == 0);
    PDJOB_CHECK(
        ::fcntl(region_.shared_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  }
  const int flags = memory == Memory::kShared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, region_.shared_fd, 0);
  PDJOB_CHECK(base != MAP_FAILED);
  for (kvtransfer::Window& window : region_.windows) {
    window.base = static_cast<std::byte*>(base) + window.shared_offset;
  }
}

KvRows::KvRows(KvRows&& other) noexcept
    : region_(std::exchange(other.region_, {})), bytes_(other.bytes_) {}

KvRows::~KvRows() {
  if (!region_.windows.empty()) {
    ::munmap(region_.windows.front().base, bytes_);
    if (region_.shared_fd >= 0) {
      ::close(region_.shared_fd);
    }
  }
}

void KvRows::fill(uint64_t owner, uint32_t first, uint32_t last) {
  for (size_t window = 0; window < kKvRowBytes.size(); ++window) {
    for (uint32_t row = first; row < last; ++row) {
      for (size_t at = 0; at < kKvRowBytes[window]; at += sizeof(uint64_t)) {
        const uint64_t value = word(owner, window, row, at);
        std::memcpy(region_.windows[window].base + size_t{row} * kKvRowBytes[window] + at, &value,
                    sizeof value);
      }
    }
  }
}

bool KvRows::holds(uint64_t owner, uint32_t rows) const {
  for (size_t window = 0; window < kKvRowBytes.size(); ++window) {
    for (uint32_t row = 0; row < rows; ++row) {
      for (size_t at = 0; at < kKvRowBytes[window]; at += sizeof(uint64_t)) {
        uint64_t value = 0;
        std::memcpy(&value, region_.windows[window].base + size_t{row} * kKvRowBytes[window] + at,
                    sizeof value);
        if (value != word(owner, window, row, at)) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace pdjob::simulation
