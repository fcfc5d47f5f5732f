// Shared by the tests of kvtransfer: regions with known bytes, and an endpoint whose events can be
// awaited.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/id.h"
#include "common/time.h"
#include "gpu/gpu.h"
#include "kvtransfer/kv_endpoint.h"

namespace pdjob::kvtransfer {

// Returns the doubles of tests/support, with a new device for each call. The endpoints of a test
// share its process, and NCCL wants one thread for each device.
NcclConfig fake_nccl();

// Returns the library of the double's GPU, or of the real one if PDJOB_GPU_CUDART names it.
std::string gpu_library();
// Frees what regions in a GPU's memory have left. Requires: none is there.
void close_test_gpu();

// A region in private memory, in a sealed memfd, or in the memory of GPU 0. It has `windows`
// windows of `rows` rows, each window with another row size.
class TestRegion {
 public:
  struct Shape {
    uint32_t windows = 4;
    uint32_t rows = 64;
    uint32_t row_bytes = 48;  // Of window 0; each further window has 16 bytes more.
  };
  enum class Memory { kPrivate, kShared, kUnsealed, kGpu };

  explicit TestRegion(Shape shape, Memory memory = Memory::kPrivate);
  TestRegion(TestRegion&& other) noexcept
      : region_(std::exchange(other.region_, {})),
        base_(std::exchange(other.base_, nullptr)),
        bytes_(other.bytes_),
        gpu_memory_(std::move(other.gpu_memory_)) {}
  TestRegion& operator=(TestRegion&&) = delete;
  ~TestRegion();

  const Region& region() const { return region_; }
  // Fills rows [first, first + count) with a function of (seed, window, row).
  void fill(uint64_t seed, uint32_t first, uint32_t count);
  bool holds(uint64_t seed, uint32_t first, uint32_t count) const;
  void clear();
  bool is_clear() const;
  uint64_t row_bytes() const;

 private:
  void make_in_gpu();
  // Returns all bytes of all windows, in any kind of memory.
  std::vector<std::byte> read() const;
  void write(std::span<const std::byte> bytes);

  Region region_;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  GpuMemory gpu_memory_;
};

// A transport and its link's settings. Transports do not know about TLS or the number of streams,
// so tests of moving rows run over each way.
struct Way {
  const char* name = "";
  TransportKind transport = TransportKind::kAuto;
  TcpConfig tcp = {};
  bool from_gpu = false;  // Whether the sender's rows are in a GPU's memory.
  bool to_gpu = false;

  TestRegion::Memory source() const {
    return from_gpu ? TestRegion::Memory::kGpu : TestRegion::Memory::kPrivate;
  }
  TestRegion::Memory target() const {
    return to_gpu                             ? TestRegion::Memory::kGpu
           : transport == TransportKind::kShm ? TestRegion::Memory::kShared
                                              : TestRegion::Memory::kPrivate;
  }
  std::optional<uint32_t> sender_device() const {
    return from_gpu ? std::optional(0U) : std::nullopt;
  }
  std::optional<uint32_t> receiver_device() const {
    return to_gpu ? std::optional(0U) : std::nullopt;
  }
  // Our own GPU may still be writing a slab when a fetch fails.
  bool writes_late() const { return transport == TransportKind::kNccl && to_gpu; }
  // A stopped sender may still write.
  bool peer_writes() const {
    return transport == TransportKind::kShm || transport == TransportKind::kCudaIpc;
  }
};
inline constexpr Way kShmWay{.name = "shm", .transport = TransportKind::kShm};
inline constexpr Way kTcpWay{.name = "tcp", .transport = TransportKind::kTcp};
inline constexpr Way kTlsWay{
    .name = "tls", .transport = TransportKind::kTcp, .tcp = {.encrypt = Encrypt::kAlways}};
inline constexpr Way kTlsStreamsWay{.name = "tls_3_streams",
                                    .transport = TransportKind::kTcp,
                                    .tcp = {.encrypt = Encrypt::kAlways, .streams = 3}};
inline constexpr Way kNcclWay{.name = "nccl", .transport = TransportKind::kNccl};
inline constexpr Way kNcclTlsWay{
    .name = "nccl_tls", .transport = TransportKind::kNccl, .tcp = {.encrypt = Encrypt::kAlways}};
inline constexpr Way kCudaIpcWay{
    .name = "cuda_ipc", .transport = TransportKind::kCudaIpc, .from_gpu = true, .to_gpu = true};
// The transports of host memory, with a GPU's memory at one end or both.
inline constexpr Way kTcpFromGpuWay{
    .name = "tcp_from_gpu", .transport = TransportKind::kTcp, .from_gpu = true};
inline constexpr Way kTcpToGpuWay{
    .name = "tcp_to_gpu", .transport = TransportKind::kTcp, .to_gpu = true};
inline constexpr Way kShmFromGpuWay{
    .name = "shm_from_gpu", .transport = TransportKind::kShm, .from_gpu = true};
inline constexpr Way kNcclGpusWay{
    .name = "nccl_gpus", .transport = TransportKind::kNccl, .from_gpu = true, .to_gpu = true};
inline constexpr Way kNcclFromGpuWay{
    .name = "nccl_from_gpu", .transport = TransportKind::kNccl, .from_gpu = true};
inline constexpr Way kNcclToGpuWay{
    .name = "nccl_to_gpu", .transport = TransportKind::kNccl, .to_gpu = true};

// An endpoint that queues its events for the test's thread.
class TestEndpoint {
 public:
  struct Options {
    std::string engine_id = "engine";
    TransportKind transport = TransportKind::kAuto;
    TcpConfig tcp = {};
    std::string token = "secret";
    Fingerprint fingerprint = {{"model_digest", "abc"}, {"kv_type", "f16"}};
    Duration lease = std::chrono::seconds(60);
    Duration connect_timeout = std::chrono::seconds(5);
    TransportOpener open_transport = {};
    NcclConfig nccl = fake_nccl();
    std::optional<uint32_t> device = {};
  };
  explicit TestEndpoint(const Options& options);

  KvEndpoint* operator->() { return endpoint_.get(); }
  // Waits until the endpoint's thread has taken all orders so far.
  void take_orders();
  // Returns whether "is awaited" becomes `wanted` within a generous time.
  bool becomes_awaited(TransferId id, bool wanted);
  // Returns the next event except OfferAwaited, or none within `timeout`.
  std::optional<EndpointEvent> next(Duration timeout = std::chrono::seconds(20));
  // Returns the next event, which must be an Event. Otherwise the test fails and it returns a
  // default one.
  template <class Event>
  Event expect(Duration timeout = std::chrono::seconds(20));

 private:
  void take(EndpointEvent event);
  void fail_expectation(const std::optional<EndpointEvent>& got, const char* wanted);

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<EndpointEvent> events_;
  std::set<TransferId> awaited_;
  std::unique_ptr<KvEndpoint> endpoint_;  // Last: its thread uses the members above.
};

// Waits until the rows of a failed fetch have no writer any more, which may be at once or soon.
void await_safe(TestEndpoint& receiver, const FetchFailed& failed);

// Returns false if the condition stays false for a generous time.
bool becomes_true(const std::function<bool()>& condition);

Instant in(Duration duration);
// "shm", "tcp", "nccl", "cuda_ipc"
const char* name_of(TransportKind transport);
TransferId transfer_id(uint64_t number);

template <class Event>
Event TestEndpoint::expect(Duration timeout) {
  std::optional<EndpointEvent> event = next(timeout);
  if (event && std::holds_alternative<Event>(*event)) {
    return std::get<Event>(*std::move(event));
  }
  fail_expectation(event, typeid(Event).name());
  return {};
}

}  // namespace pdjob::kvtransfer
