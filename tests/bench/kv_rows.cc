#include "tests/bench/kv_rows.h"

#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/check.h"

namespace pdjob::bench {

using kvtransfer::Region;
using kvtransfer::Window;

Region make_region(uint32_t rows) {
  const uint64_t bytes = kBytesPerToken * rows;
  const int fd = ::memfd_create("kv-bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  PDJOB_CHECK(::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
              ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  PDJOB_CHECK(base != MAP_FAILED);
  Region region{.rows_max = rows, .shared_fd = fd, .shared_bytes = bytes};
  for (uint64_t window = 0; window < kWindows; ++window) {
    const uint64_t offset = window * kRowBytes * rows;
    region.windows.push_back({.base = static_cast<std::byte*>(base) + offset,
                              .shared_offset = offset,
                              .row_bytes = kRowBytes});
  }
  return region;
}

void fill(const Region& region, uint32_t first, uint32_t count, uint64_t round) {
  for (const Window& window : region.windows) {
    std::memset(window.base + uint64_t{kRowBytes} * first, static_cast<int>(round + first),
                uint64_t{kRowBytes} * count);
  }
}

void copy(const Region& from, const Region& to, uint32_t first) {
  const uint64_t offset = uint64_t{kRowBytes} * first;
  const uint64_t bytes = uint64_t{kRowBytes} * from.rows_max - offset;
  for (size_t window = 0; window < kWindows; ++window) {
    std::memcpy(to.windows[window].base + offset, from.windows[window].base + offset, bytes);
  }
}

uint64_t read(const Region& region) {
  uint64_t sum = 0;
  for (const Window& window : region.windows) {
    for (uint64_t at = 0; at + sizeof sum <= uint64_t{kRowBytes} * region.rows_max; at += 32) {
      uint64_t word = 0;
      std::memcpy(&word, window.base + at, sizeof word);
      sum += word;
    }
  }
  return sum;
}

}  // namespace pdjob::bench
