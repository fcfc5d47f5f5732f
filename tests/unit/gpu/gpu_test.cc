// Gpu on libfakecudart.so: its contract for memory, copies and sums. The double runs the kernel's
// source, and this test computes the same sum independently.
#include "gpu/gpu.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/random.h"
#include "tests/support/fake_cudart.h"

namespace pdjob {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Opens the double; under `./dev gpu` the real library.
std::unique_ptr<Gpu> open_gpu() {
  const char* const real = std::getenv("PDJOB_GPU_CUDART");
  return *Gpu::open(real != nullptr ? real : PDJOB_FAKE_CUDART, 0);
}

std::vector<std::byte> random_bytes(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random.next());
  }
  return bytes;
}

Status put(Gpu& gpu, std::byte* to, const std::vector<std::byte>& bytes) {
  const GpuCopy copy{to, bytes.data(), bytes.size()};
  return gpu.copy({&copy, 1});
}

std::vector<std::byte> get(Gpu& gpu, const std::byte* from, size_t count) {
  std::vector<std::byte> bytes(count);
  const GpuCopy copy{bytes.data(), from, count};
  EXPECT_TRUE(gpu.copy({&copy, 1}));
  return bytes;
}

// Slow. Written from the comment of row_sum_kernel.cu alone.
uint64_t expected_sum(const std::vector<std::vector<std::byte>>& windows,
                      const std::vector<uint32_t>& row_bytes, uint64_t first, uint64_t rows) {
  uint64_t sum = 0;
  for (uint64_t window = 0; window < windows.size(); ++window) {
    for (uint64_t row = first; row < first + rows; ++row) {
      for (uint64_t at = 0; at < row_bytes[window]; at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, windows[window].data() + row * row_bytes[window] + at,
                    std::min<uint64_t>(8, row_bytes[window] - at));
        word ^=
            window * 0x6A09E667F3BCC909 + row * 0xBB67AE8584CAA73B + at / 8 * 0x3C6EF372FE94F82B;
        word = (word ^ (word >> 33)) * 0xFF51AFD7ED558CCD;
        word = (word ^ (word >> 33)) * 0xC4CEB9FE1A85EC53;
        sum += word ^ (word >> 33);
      }
    }
  }
  return sum;
}

class GpuTest : public testing::Test {
 protected:
  // All kernels, copies and CUDA objects must be gone.
  ~GpuTest() override {
    EXPECT_EQ(fakecudart_violations(), violations_);
    EXPECT_EQ(fakecudart_objects(), 0);
  }
  int violations_ = fakecudart_violations();
};

TEST_F(GpuTest, MemoryIsSharedByItsDescriptor) {
  const auto gpu = open_gpu();
  const GpuMemory ours = *gpu->allocate(3 * kMiB);
  EXPECT_EQ(ours.bytes(), 4 * kMiB);  // Rounded up to whole units.
  const GpuMemory theirs = *gpu->import(ours.fd(), 3 * kMiB);
  EXPECT_NE(theirs.base(), ours.base());
  const auto bytes = random_bytes(5000, 1);
  ASSERT_TRUE(put(*gpu, theirs.base() + 77, bytes));
  EXPECT_EQ(get(*gpu, ours.base() + 77, bytes.size()), bytes);
}

TEST_F(GpuTest, ImportedMemoryOutlivesItsOwner) {
  const auto gpu = open_gpu();
  const auto bytes = random_bytes(100, 2);
  GpuMemory theirs;
  {
    const GpuMemory ours = *gpu->allocate(kMiB);
    ASSERT_TRUE(put(*gpu, ours.base(), bytes));
    theirs = *gpu->import(ours.fd(), kMiB);
  }
  EXPECT_EQ(get(*gpu, theirs.base(), bytes.size()), bytes);
}

TEST_F(GpuTest, ImportRefusesWhatIsSmallerThanAnnounced) {
  const auto gpu = open_gpu();
  const GpuMemory ours = *gpu->allocate(2 * kMiB);
  EXPECT_EQ(gpu->import(ours.fd(), 3 * kMiB).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(GpuTest, ImportRefusesWhatIsNoGpusMemory) {
  const auto gpu = open_gpu();
  const int memfd = ::memfd_create("other", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(memfd, 4 * kMiB), 0);
  EXPECT_EQ(gpu->import(memfd, kMiB).error().code, ErrorCode::kInvalidArgument);
  ::close(memfd);
}

TEST_F(GpuTest, CpuCannotTouchIt) {
  const auto gpu = open_gpu();
  const GpuMemory memory = *gpu->allocate(kMiB);
  EXPECT_DEATH(*memory.base() = std::byte{1}, "");
}

TEST_F(GpuTest, SumIsThatOfItsRowsWhateverTheirAlignment) {
  const auto gpu = open_gpu();
  const std::vector<uint32_t> row_bytes = {64, 34, 204, 7, 8, 1, 2176, 96};
  constexpr uint32_t kRows = 150;
  const GpuMemory memory = *gpu->allocate(kMiB);
  std::vector<std::vector<std::byte>> contents;
  std::vector<GpuWindow> windows;
  std::byte* base = memory.base();
  for (const uint32_t bytes : row_bytes) {
    contents.push_back(random_bytes(size_t{bytes} * kRows, bytes));
    ASSERT_TRUE(put(*gpu, base, contents.back()));
    windows.push_back({base, bytes});
    base += contents.back().size() + 2;  // So the next window is aligned to 2 bytes, or to 1.
  }
  for (const auto& [first, rows] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, kRows}, {0, 1}, {149, 1}, {17, 100}}) {
    const auto queue = *GpuQueue::open(*gpu);
    ASSERT_TRUE(queue->sum_rows(windows, first, rows));
    ASSERT_TRUE(queue->wait());
    EXPECT_EQ(queue->sum(), expected_sum(contents, row_bytes, first, rows)) << first << " " << rows;
  }
}

TEST_F(GpuTest, RowsAreCopiedWhileTheyAreSummedWhateverTheirAlignmentAndNothingElseIs) {
  const auto gpu = open_gpu();
  constexpr uint32_t kFirst = 3, kRows = 40, kAll = 50;
  const std::vector<uint32_t> row_bytes = {64, 1024, 2176, 40, 204, 34, 7};
  const GpuMemory from = *gpu->allocate(kMiB), to = *gpu->allocate(kMiB);
  const auto blank = random_bytes(200'000, 9);
  ASSERT_TRUE(put(*gpu, to.base(), blank));
  std::vector<std::vector<std::byte>> contents;
  std::vector<GpuWindow> windows;
  std::vector<std::byte> expected = blank;
  size_t at = 0;
  for (const uint32_t bytes : row_bytes) {
    contents.push_back(random_bytes(size_t{bytes} * kAll, bytes));
    ASSERT_TRUE(put(*gpu, from.base() + at, contents.back()));
    windows.push_back({from.base() + at, bytes, to.base() + at});
    const auto before = static_cast<ptrdiff_t>(size_t{bytes} * kFirst);
    std::copy_n(contents.back().begin() + before, size_t{bytes} * kRows,
                expected.begin() + static_cast<ptrdiff_t>(at) + before);
    at += (contents.back().size() + 15) / 16 * 16;
  }
  windows.push_back({from.base(), 16});  // Not copied.
  contents.emplace_back(contents.front().begin(), contents.front().begin() + ptrdiff_t{kAll} * 16);
  std::vector<uint32_t> all_bytes = row_bytes;
  all_bytes.push_back(16);
  const auto queue = *GpuQueue::open(*gpu);
  ASSERT_TRUE(queue->sum_rows(windows, kFirst, kRows));
  ASSERT_TRUE(queue->wait());
  EXPECT_EQ(queue->sum(), expected_sum(contents, all_bytes, kFirst, kRows));
  EXPECT_EQ(get(*gpu, to.base(), blank.size()), expected);
}

TEST_F(GpuTest, SumsOfRangesAddUpAndSwappedRowsDiffer) {
  const auto gpu = open_gpu();
  const GpuMemory memory = *gpu->allocate(kMiB);
  const std::vector<GpuWindow> windows = {{memory.base(), 128}};
  auto rows = random_bytes(size_t{128} * 40, 5);
  const auto sum = [&](uint32_t first, uint32_t count) {
    EXPECT_TRUE(put(*gpu, memory.base(), rows));
    const auto queue = *GpuQueue::open(*gpu);
    EXPECT_TRUE(queue->sum_rows(windows, first, count));
    EXPECT_TRUE(queue->wait());
    return queue->sum();
  };
  const uint64_t whole = sum(0, 40);
  EXPECT_EQ(sum(0, 13) + sum(13, 27), whole);
  std::swap_ranges(rows.begin(), rows.begin() + 128, rows.begin() + 128);
  EXPECT_NE(sum(0, 40), whole);
  std::swap_ranges(rows.begin(), rows.begin() + 128, rows.begin() + 128);
  rows[700] ^= std::byte{4};
  EXPECT_NE(sum(0, 40), whole);
}

TEST_F(GpuTest, DoubleDestroyedQueueHasFinishedItsCopies) {
  ::setenv("FAKE_CUDA_COPY_DELAY_US", "20000", 1);
  const auto gpu = open_gpu();
  const GpuMemory from = *gpu->allocate(kMiB);
  {
    const GpuMemory to = *gpu->allocate(kMiB);
    const auto queue = *GpuQueue::open(*gpu);
    const GpuWindow window{.base = from.base(), .row_bytes = 1000, .to = to.base()};
    ASSERT_TRUE(queue->sum_rows({&window, 1}, 0, 1));
    EXPECT_FALSE(*queue->idle());
  }
  ::unsetenv("FAKE_CUDA_COPY_DELAY_US");
}

TEST_F(GpuTest, DoubleNoticesMemoryThatGoesWhileACopyUsesIt) {
  ::setenv("FAKE_CUDA_COPY_DELAY_US", "20000", 1);
  const auto gpu = open_gpu();
  const GpuMemory from = *gpu->allocate(kMiB);
  const auto queue = *GpuQueue::open(*gpu);
  {
    const GpuMemory to = *gpu->allocate(kMiB);
    const GpuWindow window{.base = from.base(), .row_bytes = 1000, .to = to.base()};
    ASSERT_TRUE(queue->sum_rows({&window, 1}, 0, 1));
  }
  EXPECT_EQ(fakecudart_violations(), ++violations_);
  ::unsetenv("FAKE_CUDA_COPY_DELAY_US");
}

// Freeing it would wait for that kernel. On the real GPU, it is one of NCCL that waits for a peer.
TEST_F(GpuTest, DoubleOfAKernelThatWaitsDoesNotKeepPinnedMemoryFromBeingGivenBack) {
  const auto gpu = open_gpu();
  const GpuApi api = *GpuApi::open(PDJOB_FAKE_CUDART);
  GpuStream* stream = nullptr;
  ASSERT_EQ(api.stream_create_with_flags(&stream, kGpuStreamNonBlocking), kGpuSuccess);
  std::atomic<bool> peer_came = false;
  fakecudart_launch(
      stream,
      [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) {
          ::usleep(1000);
        }
      },
      &peer_came);
  std::thread peer([&] {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    peer_came = true;
  });
  const GpuMemory memory = *gpu->allocate(kMiB);
  for (const size_t windows : {1, 100, 1000}) {  // Each sum wants more pinned memory.
    const auto queue = *GpuQueue::open(*gpu);
    const std::vector<GpuWindow> all(windows, GpuWindow{memory.base(), 64});
    ASSERT_TRUE(queue->sum_rows(all, 0, 8));
    ASSERT_TRUE(queue->wait());
  }
  const std::byte* const given_back = gpu->pin(5000)->base();
  EXPECT_EQ(gpu->pin(6000)->base(), given_back) << "it is there for the next user";
  EXPECT_FALSE(peer_came);
  peer.join();
  EXPECT_EQ(api.stream_destroy(stream), kGpuSuccess);
}

TEST_F(GpuTest, DoubleCannotBeUsedByAProcessThatWasForkedAfterItsUse) {
  const auto gpu = open_gpu();
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(Gpu::open(PDJOB_FAKE_CUDART, 0) ? 0 : 7);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(GpuTest, DoubleInUnifiedModeLetsTheCpuAndCopiesSeeTheSameBytes) {
  const auto gpu = open_gpu();
  ::setenv("FAKE_CUDA_UNIFIED", "1", 1);
  const GpuMemory unified = *gpu->allocate(kMiB);
  ::unsetenv("FAKE_CUDA_UNIFIED");
  const GpuMemory plain = *gpu->import(unified.fd(), unified.bytes());
  const std::vector<std::byte> bytes = random_bytes(1000, 1);
  std::memcpy(unified.base() + 5, bytes.data(), bytes.size());
  EXPECT_EQ(get(*gpu, plain.base() + 5, bytes.size()), bytes);
  const std::vector<std::byte> others = random_bytes(1000, 2);
  ASSERT_TRUE(put(*gpu, plain.base() + 5, others));
  EXPECT_EQ(std::memcmp(unified.base() + 5, others.data(), others.size()), 0);
  EXPECT_DEATH(plain.base()[5] = std::byte{1}, "");
}

TEST_F(GpuTest, DoubleCopyBeyondMemoryIsAnError) {
  const auto gpu = open_gpu();
  const GpuMemory memory = *gpu->allocate(2 * kMiB);
  const GpuCopy beyond{memory.base() + 2 * kMiB - 10, memory.base(), 11};
  EXPECT_FALSE(gpu->copy({&beyond, 1}));
  EXPECT_EQ(fakecudart_violations(), ++violations_);
}

TEST_F(GpuTest, DoubleRefusesAnOldRuntime) {
  ::setenv("FAKE_CUDA_VERSION", "12090", 1);
  const auto old = Gpu::open(PDJOB_FAKE_CUDART, 0);
  ::unsetenv("FAKE_CUDA_VERSION");
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(old.error().message.find("is CUDA 12.9, at least 13.0 is needed"), std::string::npos)
      << old.error().message;
}

TEST_F(GpuTest, DoubleRefusesAGpuThatIsNotThere) {
  ::setenv("FAKE_CUDA_DEVICES", "1", 1);
  const auto gpu = Gpu::open(PDJOB_FAKE_CUDART, 1);
  ::unsetenv("FAKE_CUDA_DEVICES");
  ASSERT_FALSE(gpu);
  EXPECT_EQ(gpu.error().message, "there is no GPU 1, this machine has 1");
}

}  // namespace
}  // namespace pdjob
