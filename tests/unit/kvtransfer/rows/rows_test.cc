// Rows as bytes: cursor, copy, digest, mappings of peers' memory, and configuration.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/limits.h"
#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "kvtransfer/link/gpu_arrivals.h"
#include "kvtransfer/rows/row_cursor.h"
#include "kvtransfer/rows/row_digest.h"
#include "kvtransfer/rows/row_sum.h"
#include "kvtransfer/rows/shared_mapping.h"
#include "kvtransfer/shm/shm_transport.h"
#include "tests/unit/kvtransfer/kv_fixture.h"
#include "tests/unit/kvtransfer/no_stream.h"

namespace pdjob::kvtransfer {
namespace {

std::vector<std::byte> bytes_in_order(const Region& region, RowRange range, size_t step) {
  std::vector<std::byte> bytes;
  RowCursor cursor(region.windows, range);
  while (cursor.bytes_left() > 0) {
    const auto piece = cursor.next(step);
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    cursor.advance(piece.size());
  }
  return bytes;
}

TEST(RowCursor, WalksWindowByWindow) {
  TestRegion region({.windows = 3, .rows = 10});
  region.fill(1, 0, 10);
  std::vector<std::byte> wanted;
  for (const Window& window : region.region().windows) {
    wanted.insert(wanted.end(), window.base + size_t{2} * window.row_bytes,
                  window.base + size_t{7} * window.row_bytes);
  }
  for (const size_t step : {1, 7, 64, 1 << 20}) {
    EXPECT_EQ(bytes_in_order(region.region(), {2, 5}, step), wanted);
  }
}

TEST(RowCursor, GathersWithinBothBounds) {
  TestRegion region({.windows = 3, .rows = 10, .row_bytes = 10});
  RowCursor cursor(region.region().windows, {0, 1});
  std::array<iovec, 8> pieces;
  EXPECT_EQ(cursor.gather(pieces, 1000), 3);
  EXPECT_EQ(cursor.gather(std::span(pieces).first(2), 1000), 2);
  EXPECT_EQ(cursor.gather(pieces, 15), 2);
  EXPECT_EQ(pieces[1].iov_len, 5);
  cursor.advance(15);
  EXPECT_EQ(cursor.gather(pieces, 1000), 2);
  EXPECT_EQ(pieces[0].iov_len, 21);
}

TEST(RowCursor, NoRowsHaveNoBytes) {
  TestRegion region({});
  EXPECT_EQ(RowCursor(region.region().windows, {3, 0}).bytes_left(), 0);
  EXPECT_TRUE(RowCursor(region.region().windows, {3, 0}).next(10).empty());
}

std::vector<std::byte> some_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 131 + i / 251);
  }
  return bytes;
}

constexpr std::array kCodes = {VectorCode::kPortable, VectorCode::kAvx2};

bool runs_here(VectorCode code) { return code == VectorCode::kPortable || fastest_code() == code; }

TEST(RowDigest, CopiesLikeMemcpyAtEveryAlignment) {
  const std::vector<std::byte> from = some_bytes(2048);
  std::vector<std::byte> to(2048), wanted(2048);
  for (const VectorCode code : kCodes) {
    for (size_t offset = 0; runs_here(code) && offset < 70; ++offset) {
      for (const size_t bytes : {0, 1, 63, 64, 65, 129, 200, 900, 1900}) {
        std::fill(to.begin(), to.end(), std::byte{0});
        wanted = to;
        std::copy_n(from.begin() + 3, bytes, wanted.begin() + static_cast<ptrdiff_t>(offset));
        RowDigest copied(code), read(code);
        copied.update_and_copy(std::span(from).subspan(3, bytes), to.data() + offset);
        finish_copies();
        ASSERT_EQ(to, wanted) << offset << " " << bytes;
        read.update(std::span(from).subspan(3, bytes));
        ASSERT_EQ(copied.value(), read.value()) << offset << " " << bytes;
      }
    }
  }
}

TEST(RowDigest, DependsOnBytesAndNotOnPieces) {
  TestRegion region({});
  region.fill(3, 0, 64);
  RowDigest whole, parts, other;
  RowCursor cursor(region.region().windows, {0, 64});
  hash_and_advance(whole, cursor, cursor.bytes_left());
  cursor = RowCursor(region.region().windows, {0, 64});
  while (cursor.bytes_left() > 0) {
    hash_and_advance(parts, cursor, std::min<uint64_t>(17, cursor.bytes_left()));
  }
  EXPECT_EQ(whole.value(), parts.value());
  region.region().windows[1].base[5] ^= std::byte{1};
  cursor = RowCursor(region.region().windows, {0, 64});
  hash_and_advance(other, cursor, cursor.bytes_left());
  EXPECT_NE(whole.value(), other.value());
}

// The ends of a link may run on different CPUs. Each must compute the same digest, in pieces or at
// once.
TEST(RowDigest, IsXxh3OnEveryCpu) {
  const std::vector<std::byte> bytes = some_bytes(1'000'003);
  std::vector<std::byte> to(bytes.size());
  for (const VectorCode code : kCodes) {
    for (const size_t step : {size_t{63}, size_t{64}, size_t{4096}, size_t{65537}, bytes.size()}) {
      if (!runs_here(code)) {
        continue;
      }
      RowDigest read(code), copied(code);
      for (size_t at = 0; at < bytes.size(); at += step) {
        const auto piece = std::span(bytes).subspan(at, std::min(step, bytes.size() - at));
        read.update(piece);
        copied.update_and_copy(piece, to.data() + at);
      }
      EXPECT_EQ(read.value(), 0x465ef5acd45be657) << step;  // From `xxhsum -H3`.
      EXPECT_EQ(copied.value(), 0x465ef5acd45be657) << step;
      EXPECT_EQ(to, bytes);
    }
  }
}

// Covers each length at which xxh3 changes its algorithm, in one piece and in two.
TEST(RowDigest, IsXxh3OfEveryLength) {
  const std::vector<std::byte> bytes = some_bytes(3000);
  for (const VectorCode code : kCodes) {
    for (size_t length = 0; runs_here(code) && length <= bytes.size(); ++length) {
      const uint64_t wanted = XXH3_64bits(bytes.data(), length);
      RowDigest whole(code), halves(code);
      whole.update(std::span(bytes).first(length));
      ASSERT_EQ(whole.value(), wanted) << length;
      halves.update(std::span(bytes).first(length / 2));
      halves.update(std::span(bytes).subspan(length / 2, length - length / 2));
      ASSERT_EQ(halves.value(), wanted) << length;
    }
  }
}

Fd memfd(size_t bytes, int seals) {
  Fd fd(::memfd_create("kv-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(MappingCache, RefusesMemoryThatCouldShrink) {
  MappingCache cache(4);
  EXPECT_EQ(cache.map(memfd(4096, F_SEAL_GROW), 4096).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(cache.map(Fd(::open("/dev/zero", O_RDWR)), 4096).error().code, ErrorCode::kUnsupported);
}

TEST(MappingCache, RefusesMemoryThatIsTooSmall) {
  MappingCache cache(4);
  EXPECT_EQ(cache.map(memfd(4096, F_SEAL_SHRINK), 8192).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.map(memfd(4096, F_SEAL_SHRINK), 0).error().code, ErrorCode::kInvalidArgument);
}

TEST(MappingCache, MapsTheSameMemoryOnceAndForgetsTheOldest) {
  MappingCache cache(2);
  const Fd first = memfd(8192, F_SEAL_SHRINK), second = memfd(4096, F_SEAL_SHRINK),
           third = memfd(4096, F_SEAL_SHRINK);
  const auto mapping = *cache.map(first, 8192);
  EXPECT_EQ(*cache.map(Fd(::dup(first.get())), 4096), mapping);
  EXPECT_EQ(cache.size(), 1);
  ASSERT_TRUE(cache.map(second, 4096).has_value());
  ASSERT_TRUE(cache.map(first, 8192).has_value());
  ASSERT_TRUE(cache.map(third, 4096).has_value());  // Evicts the second.
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(*cache.map(first, 8192), mapping);
  mapping->base()[0] = std::byte{1};  // A mapping in use outlives its place in the cache.
}

// Regression: page faults made the first transfer into a sequence three times as slow as later
// ones.
TEST(MappingCache, LeavesNoPageFaultsToTheCopy) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own memory is first touched then, too";
#endif
  constexpr size_t kPages = 2048, kPageBytes = 4096;
  MappingCache cache(4);
  const auto mapping = *cache.map(memfd(kPages * kPageBytes, F_SEAL_SHRINK), kPages * kPageBytes);
  // It maps only what is needed: mapping a region of gigabytes at once would delay everybody else.
  EXPECT_EQ(mapping->touch(1, 1), 64 * kPageBytes);
  EXPECT_EQ(mapping->touch(64 * kPageBytes - 1, 2), 64 * kPageBytes);
  EXPECT_EQ(mapping->touch(0, kPages * kPageBytes), (kPages - 128) * kPageBytes);
  EXPECT_EQ(mapping->touch(0, kPages * kPageBytes), 0);
  rusage before{}, after{};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &before), 0);
  for (size_t page = 0; page < kPages; ++page) {
    mapping->base()[page * kPageBytes] = std::byte{1};
  }
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &after), 0);
  EXPECT_LT(after.ru_minflt - before.ru_minflt, kPages / 4);
}

// Regression: each further window still mapped one piece, up to a gigabyte in a single turn.
TEST(ShmTransport, MapsNoMoreThanItsBoundWhenRowsAreGranted) {
  constexpr uint64_t kBound = 32 * limits::kMiB, kStride = 256 * limits::kKiB;
  constexpr uint32_t kRows = 8192, kSmallWindows = 16;
  Grant grant{.id = transfer_id(1),
              .rows = kRows,
              .shared_bytes = kBound + kSmallWindows * kStride,
              .windows = {{.row_bytes = kBound / kRows}}};
  for (uint32_t i = 0; i < kSmallWindows; ++i) {
    grant.windows.push_back({.row_bytes = 1, .shared_offset = kBound + i * kStride + 1});
  }
  const Fd shared = memfd(grant.shared_bytes, F_SEAL_SHRINK);
  NoStream stream;
  ShmTransport transport(stream);
  ASSERT_TRUE(transport.open_sender(grant, Fd(::dup(shared.get()))));
  struct stat file{};
  ASSERT_EQ(::fstat(shared.get(), &file), 0);
  EXPECT_LE(static_cast<uint64_t>(file.st_blocks) * 512, kBound);
}

TEST(KvTransferConfig, ReadsItsKeysAndRefusesOthers) {
  KvTransferConfig config;
  ConfigReader in = ConfigReader::parse("job.yaml", "transport: tcp\nlease: 5s\n");
  read(in, config);
  EXPECT_EQ(in.finish(), "");
  EXPECT_EQ(config.transport, TransportKind::kTcp);
  EXPECT_EQ(config.lease, std::chrono::seconds(5));
  ConfigReader wrong = ConfigReader::parse("job.yaml", "transport: pigeon\n");
  read(wrong, config);
  EXPECT_NE(wrong.finish().find("transport"), std::string::npos);
}

uint64_t sum_by_kernel(const Region& region, RowRange range) {
  const auto gpu = *Gpu::open(gpu_library(), 0);
  const auto queue = *GpuQueue::open(*gpu);
  EXPECT_TRUE(queue->sum_rows(gpu_windows(region), range.first, range.count));
  EXPECT_TRUE(queue->wait());
  return queue->sum();
}

// Sums in pieces of `step` bytes, as rows arrive.
uint64_t sum_by_cpu(const Region& region, RowRange range, size_t step, VectorCode code) {
  RowSum sum(code);
  sum.begin(region.windows, range);
  RowCursor cursor(region.windows, range);
  while (cursor.bytes_left() > 0) {
    const auto piece = cursor.next(step);
    sum.update(piece);
    cursor.advance(piece.size());
  }
  return sum.value();
}

TEST(RowSum, IsThatOfTheKernelWhateverTheRowsAndThePieces) {
  for (const uint32_t row_bytes : {1, 7, 8, 34, 64, 204, 1090}) {
    const TestRegion::Shape shape{.windows = 3, .rows = 40, .row_bytes = row_bytes};
    TestRegion in_gpu(shape, TestRegion::Memory::kGpu), in_host(shape);
    in_gpu.fill(row_bytes, 0, shape.rows);
    in_host.fill(row_bytes, 0, shape.rows);
    for (const RowRange range : {RowRange{0, 40}, RowRange{17, 23}, RowRange{39, 1}}) {
      const uint64_t wanted = sum_by_kernel(in_gpu.region(), range);
      for (const VectorCode code : kCodes) {
        for (const size_t step : {1, 3, 8, 13, 100, 1 << 20}) {
          EXPECT_TRUE(!runs_here(code) || sum_by_cpu(in_host.region(), range, step, code) == wanted)
              << row_bytes << " bytes from row " << range.first << " by " << step;
        }
      }
    }
  }
}

TEST(RowSum, OfRangesAddUpAndEveryChangedByteChangesIt) {
  TestRegion region({.windows = 2, .rows = 10, .row_bytes = 13});
  region.fill(1, 0, 10);
  RowSum sum;
  for (const RowRange range : {RowRange{0, 4}, RowRange{4, 6}}) {
    sum.begin(region.region().windows, range);
    sum.update(bytes_in_order(region.region(), range, 1 << 20));
  }
  const uint64_t whole = sum_by_cpu(region.region(), {0, 10}, 64, fastest_code());
  EXPECT_EQ(sum.value(), whole);
  for (const Window& window : region.region().windows) {
    for (uint32_t byte = 0; byte < 10 * window.row_bytes; ++byte) {
      window.base[byte] ^= std::byte{1};
      EXPECT_NE(sum_by_cpu(region.region(), {0, 10}, 64, fastest_code()), whole) << byte;
      window.base[byte] ^= std::byte{1};
    }
  }
}

}  // namespace
}  // namespace pdjob::kvtransfer
