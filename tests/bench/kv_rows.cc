#include "tests/bench/kv_rows.h"

#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/check.h"

namespace pdjob::bench {

using kvtransfer::Region;
using kvtransfer::Window;

Region make_region(uint32_t rows, const RowShape& shape) {
  const uint64_t bytes = shape.bytes_per_token() * rows;
  const int fd = ::memfd_create("kv-bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  PDJOB_CHECK(::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
              ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  PDJOB_CHECK(base != MAP_FAILED);
  Region region{.rows_max = rows, .shared_fd = fd, .shared_bytes = bytes};
  for (uint64_t window = 0; window < shape.windows; ++window) {
    const uint64_t offset = window * shape.row_bytes * rows;
    region.windows.push_back({.base = static_cast<std::byte*>(base) + offset,
                              .shared_offset = offset,
                              .row_bytes = shape.row_bytes});
  }
  return region;
}

void fill(const Region& region, uint32_t first, uint32_t count, uint64_t round) {
  for (const Window& window : region.windows) {
    std::memset(window.base + uint64_t{window.row_bytes} * first, static_cast<int>(round + first),
                uint64_t{window.row_bytes} * count);
  }
}

void copy(const Region& from, const Region& to, uint32_t first) {
  for (size_t i = 0; i < from.windows.size(); ++i) {
    const uint64_t offset = uint64_t{from.windows[i].row_bytes} * first;
    const uint64_t bytes = uint64_t{from.windows[i].row_bytes} * from.rows_max - offset;
    std::memcpy(to.windows[i].base + offset, from.windows[i].base + offset, bytes);
  }
}

uint64_t read(const Region& region) {
  uint64_t sum = 0;
  for (const Window& window : region.windows) {
    for (uint64_t at = 0; at + sizeof sum <= uint64_t{window.row_bytes} * region.rows_max;
         at += 32) {
      uint64_t word = 0;
      std::memcpy(&word, window.base + at, sizeof word);
      sum += word;
    }
  }
  return sum;
}

}  // namespace pdjob::bench
