#include "tests/unit/kvtransfer/kv_fixture.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/check.h"
#include "common/os/real_clock.h"
#include "common/random.h"

namespace pdjob::kvtransfer {
namespace {

// Writes the bytes of a row, a function of (seed, window, row).
void write_row(std::span<std::byte> bytes, uint64_t seed, size_t window, uint32_t row) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = mix(seed ^ (window << 48) ^ (uint64_t{row} << 20) ^ at);
    std::memcpy(&bytes[at], &word, std::min(sizeof(word), bytes.size() - at));
  }
}

// Lives until close_test_gpu(): regions of any test use it.
Gpu* opened_gpu = nullptr;

Gpu& test_gpu() {
  if (opened_gpu == nullptr) {
    opened_gpu = Gpu::open(gpu_library(), 0)->release();
  }
  return *opened_gpu;
}

std::string describe(const EndpointEvent& event) {
  struct Describe {
    std::string operator()(const OfferAwaited&) { return "OfferAwaited"; }
    std::string operator()(const OfferDone&) { return "OfferDone"; }
    std::string operator()(const OfferFailed& e) { return "OfferFailed: " + e.error.message; }
    std::string operator()(const FetchDone&) { return "FetchDone"; }
    std::string operator()(const FetchFailed& e) { return "FetchFailed: " + e.error.message; }
    std::string operator()(const FetchReleased&) { return "FetchReleased"; }
    std::string operator()(const BlocksTold& /*event*/) const { return "BlocksTold"; }
  };
  return std::visit(Describe{}, event);
}

}  // namespace

std::string gpu_library() {
  const char* const real = std::getenv("PDJOB_GPU_CUDART");
  return real != nullptr ? real : PDJOB_FAKE_CUDART;
}

void close_test_gpu() { delete std::exchange(opened_gpu, nullptr); }

TestRegion::TestRegion(Shape shape, Memory memory) {
  for (uint32_t window = 0; window < shape.windows; ++window) {
    const uint32_t row_bytes = shape.row_bytes + 16 * window;
    region_.windows.push_back({.shared_offset = bytes_, .row_bytes = row_bytes});
    bytes_ += uint64_t{row_bytes} * shape.rows;
  }
  region_.rows_max = shape.rows;
  if (memory == Memory::kGpu) {
    make_in_gpu();
    return;
  }
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (memory != Memory::kPrivate) {
    flags = MAP_SHARED;
    region_.shared_fd = ::memfd_create("kv-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    region_.shared_bytes = bytes_;
    PDJOB_CHECK(::ftruncate(region_.shared_fd, static_cast<off_t>(bytes_)) == 0);
    if (memory == Memory::kShared) {
      PDJOB_CHECK(
          ::fcntl(region_.shared_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    }
  }
  void* base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, region_.shared_fd, 0);
  PDJOB_CHECK(base != MAP_FAILED);
  base_ = static_cast<std::byte*>(base);
  for (Window& window : region_.windows) {
    window.base = base_ + window.shared_offset;
  }
}

void TestRegion::make_in_gpu() {
  static std::atomic<uint64_t> made = 0;
  gpu_memory_ = *test_gpu().allocate(bytes_);
  region_.device = 0;
  region_.shared_fd = gpu_memory_.fd();
  region_.shared_bytes = bytes_;
  region_.shared_id = ++made;
  for (Window& window : region_.windows) {
    window.base = gpu_memory_.base() + window.shared_offset;
  }
  clear();
}

std::vector<std::byte> TestRegion::read() const {
  if (!region_.device) {
    return {base_, base_ + bytes_};
  }
  std::vector<std::byte> bytes(bytes_);
  const GpuCopy copy{.to = bytes.data(), .from = gpu_memory_.base(), .bytes = bytes_};
  PDJOB_CHECK(test_gpu().copy({&copy, 1}));
  return bytes;
}

void TestRegion::write(std::span<const std::byte> bytes) {
  if (!region_.device) {
    std::copy(bytes.begin(), bytes.end(), base_);
    return;
  }
  const GpuCopy copy{.to = gpu_memory_.base(), .from = bytes.data(), .bytes = bytes_};
  PDJOB_CHECK(test_gpu().copy({&copy, 1}));
}

TestRegion::~TestRegion() {
  if (base_ != nullptr) {
    ::munmap(base_, bytes_);
    if (region_.shared_fd >= 0) {
      ::close(region_.shared_fd);
    }
  }
}

// Writes only these rows: other rows may be read at the same time.
void TestRegion::fill(uint64_t seed, uint32_t first, uint32_t count) {
  std::vector<std::vector<std::byte>> parts;
  std::vector<GpuCopy> copies;
  for (size_t window = 0; window < region_.windows.size(); ++window) {
    const Window& to = region_.windows[window];
    std::vector<std::byte>& part = parts.emplace_back(size_t{count} * to.row_bytes);
    for (uint32_t row = 0; row < count; ++row) {
      write_row(std::span(part).subspan(size_t{row} * to.row_bytes, to.row_bytes), seed, window,
                first + row);
    }
    std::byte* const rows = to.base + uint64_t{first} * to.row_bytes;
    if (region_.device) {
      copies.push_back({.to = rows, .from = part.data(), .bytes = part.size()});
    } else {
      std::ranges::copy(part, rows);
    }
  }
  if (region_.device) {
    PDJOB_CHECK(test_gpu().copy(copies));
  }
}

bool TestRegion::holds(uint64_t seed, uint32_t first, uint32_t count) const {
  const std::vector<std::byte> bytes = read();
  for (size_t window = 0; window < region_.windows.size(); ++window) {
    const Window& in_window = region_.windows[window];
    std::vector<std::byte> expected(in_window.row_bytes);
    for (uint32_t row = first; row < first + count; ++row) {
      write_row(expected, seed, window, row);
      if (std::memcmp(&bytes[in_window.shared_offset + uint64_t{row} * in_window.row_bytes],
                      expected.data(), expected.size()) != 0) {
        return false;
      }
    }
  }
  return true;
}

bool TestRegion::is_clear() const {
  return std::ranges::all_of(read(), [](std::byte byte) { return byte == std::byte{0}; });
}

void TestRegion::clear() { write(std::vector<std::byte>(bytes_)); }

uint64_t TestRegion::row_bytes() const {
  uint64_t bytes = 0;
  for (const Window& window : region_.windows) {
    bytes += window.row_bytes;
  }
  return bytes;
}

TestEndpoint::TestEndpoint(const Options& options) {
  auto started = KvEndpoint::start(
      {.config = {.transport = options.transport,
                  .lease = options.lease,
                  .connect_timeout = options.connect_timeout,
                  .tcp = options.tcp,
                  .nccl = options.nccl},
       .engine_id = options.engine_id,
       .keys = options.token.empty()
                   ? std::nullopt
                   : std::optional(LinkAuthority(options.token).issue(options.engine_id)),
       .fingerprint = options.fingerprint,
       .sink =
           [this](EndpointEvent event) {
             const std::lock_guard lock(mutex_);
             take(std::move(event));
             came_.notify_one();
           },
       .device = options.device,
       .open_transport = options.open_transport});
  PDJOB_CHECK(started.has_value(), started.has_value() ? "" : started.error().message);
  endpoint_ = *std::move(started);
}

void TestEndpoint::take(EndpointEvent event) {
  const auto* awaited = std::get_if<OfferAwaited>(&event);
  if (awaited == nullptr) {
    events_.push_back(std::move(event));
  } else if (awaited->awaited) {
    EXPECT_TRUE(awaited_.insert(awaited->id).second) << "awaited twice";
  } else {
    EXPECT_EQ(awaited_.erase(awaited->id), 1U) << "was not awaited";
  }
}

bool TestEndpoint::becomes_awaited(TransferId id, bool wanted) {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, std::chrono::seconds(20),
                        [&] { return awaited_.contains(id) == wanted; });
}

void TestEndpoint::take_orders() {
  std::promise<void> taken;
  endpoint_->report_pairs([&taken](const std::vector<PairStats>&) { taken.set_value(); });
  taken.get_future().wait();
}

std::optional<EndpointEvent> TestEndpoint::next(Duration timeout) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_for(lock, timeout, [this] { return !events_.empty(); })) {
    return std::nullopt;
  }
  EndpointEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void TestEndpoint::fail_expectation(const std::optional<EndpointEvent>& got, const char* wanted) {
  ADD_FAILURE() << "wanted " << wanted << ", got " << (got ? describe(*got) : "nothing");
}

void await_safe(TestEndpoint& receiver, const FetchFailed& failed) {
  if (!failed.region_safe) {
    EXPECT_EQ(receiver.expect<FetchReleased>(std::chrono::seconds(5)).id, failed.id);
  }
}

bool becomes_true(const std::function<bool()>& condition) {
  for (const Instant end = in(std::chrono::seconds(20)); real_now() < end;) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return condition();
}

Instant in(Duration duration) { return real_now() + duration; }

NcclConfig fake_nccl() {
  static std::atomic<uint32_t> devices = 0;
  return {.library = PDJOB_FAKE_NCCL,
          .cuda = {.device = devices++ % 64, .library = PDJOB_FAKE_CUDART}};
}

const char* name_of(TransportKind transport) {
  static constexpr const char* kNames[] = {"auto", "shm", "tcp", "nccl", "cuda_ipc"};
  return kNames[static_cast<size_t>(transport)];
}

TransferId transfer_id(uint64_t number) { return {.high = 0x1234, .low = number}; }

}  // namespace pdjob::kvtransfer
