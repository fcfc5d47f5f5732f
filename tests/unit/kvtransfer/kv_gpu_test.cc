// KV in a GPU's memory: which transport is taken, what is refused, and that all writes have ended
// when the receiver is told so. It runs on libfakecudart.so, whose memory the CPU cannot touch.
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "tests/support/fake_cudart.h"
#include "tests/unit/kvtransfer/kv_fixture.h"
#include "tests/unit/kvtransfer/no_stream.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);

TestEndpoint::Options options(const std::string& engine_id, std::optional<uint32_t> device,
                              TransportKind transport = TransportKind::kAuto) {
  return {.engine_id = engine_id, .transport = transport, .device = device};
}

// Moves rows between two endpoints of transport auto. Returns the name of the transport taken.
std::string transport_taken(std::optional<uint32_t> from_device,
                            std::optional<uint32_t> to_device) {
  TestEndpoint sender(options("prefill", from_device)), receiver(options("decode", to_device));
  TestRegion source({}, from_device ? TestRegion::Memory::kGpu : TestRegion::Memory::kPrivate);
  TestRegion to({}, to_device ? TestRegion::Memory::kGpu : TestRegion::Memory::kShared);
  source.fill(1, 0, 64);
  sender->offer(transfer_id(1), source.region(), in(kDeadline));
  sender->commit(transfer_id(1), 64, {});
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  const auto done = receiver.expect<FetchDone>();
  EXPECT_TRUE(to.holds(1, 0, 64));
  sender.expect<OfferDone>();
  return done.transport;
}

TEST(KvGpu, AutoTakesCudaIpcBetweenGpusOfOneMachine) {
  EXPECT_EQ(transport_taken(0, 0), "cuda_ipc");
}

TEST(KvGpu, AutoTakesShmFromAGpuToTheHost) { EXPECT_EQ(transport_taken(0, {}), "shm"); }

TEST(KvGpu, AutoTakesTcpFromTheHostToAGpu) { EXPECT_EQ(transport_taken({}, 0), "tcp"); }

TEST(KvGpu, AutoTakesTcpBetweenGpusOfTwoMachines) {
  TestEndpoint sender(options("prefill", 0)), receiver(options("decode", 0));
  TestRegion source({}, TestRegion::Memory::kGpu), to({}, TestRegion::Memory::kGpu);
  source.fill(1, 0, 64);
  sender->offer(transfer_id(1), source.region(), in(kDeadline));
  sender->commit(transfer_id(1), 64, {});
  EndpointAddress address = sender->address();
  address.host_id = "elsewhere";
  receiver->fetch(transfer_id(1), address, to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchDone>().transport, "tcp");
  EXPECT_TRUE(to.holds(1, 0, 64));
}

TEST(KvGpu, CudaIpcRefusesWhatItCannotServe) {
  TestEndpoint receiver(options("decode", 0, TransportKind::kCudaIpc));
  TestRegion to({}, TestRegion::Memory::kGpu), host({});
  const auto refusal = [&](const EndpointAddress& peer, const TestRegion& target) {
    static uint64_t number = 0;
    receiver->fetch(transfer_id(++number), peer, target.region(), 64, in(kDeadline));
    return receiver.expect<FetchFailed>().error.message;
  };
  TestEndpoint on_host(options("prefill", {}));
  EXPECT_EQ(refusal(on_host->address(), to),
            "kvtransfer.transport is cuda_ipc, but the peer does not offer it");
  TestEndpoint on_gpu(options("prefill", 0));
  EXPECT_EQ(refusal(on_gpu->address(), host),
            "kvtransfer.transport is cuda_ipc, but the target is not in a GPU's memory");
  EndpointAddress far = on_gpu->address();
  far.host_id = "elsewhere";
  EXPECT_EQ(refusal(far, to),
            "kvtransfer.transport is cuda_ipc, but the peer is on another machine");
}

TEST(KvGpu, CudaIpcDoesNotStartWithoutAGpu) {
  const auto started = KvEndpoint::start({.config = {.transport = TransportKind::kCudaIpc},
                                          .engine_id = "engine",
                                          .sink = [](EndpointEvent) {}});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().message,
            "kvtransfer.transport is cuda_ipc, but the engine keeps its KV in the host's memory");
}

TEST(KvGpu, RegionOfAnotherGpuIsRefused) {
  TestEndpoint sender(options("prefill", 1));
  TestRegion source({}, TestRegion::Memory::kGpu);
  sender->offer(transfer_id(1), source.region(), in(kDeadline));
  EXPECT_EQ(sender.expect<OfferFailed>().error.message,
            "the KV region is in the memory of GPU 0, which is not the endpoint's");
}

// Copies are slow, so the cancel arrives while they run.
TEST(KvGpu, NoCopyLandsAfterACancelIsAnswered) {
  TestEndpoint sender(options("prefill", 0)), receiver(options("decode", 0));
  TestRegion source({}, TestRegion::Memory::kGpu), to({}, TestRegion::Memory::kGpu);
  source.fill(1, 0, 64);
  ::setenv("FAKE_CUDA_COPY_DELAY_US", "200000", 1);
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  EXPECT_TRUE(sender.becomes_awaited(transfer_id(1), true));
  sender->offer(transfer_id(1), source.region(), in(kDeadline));
  sender->rows_ready(transfer_id(1), 64);
  EXPECT_FALSE(receiver.next(milliseconds(50)));
  receiver->cancel(transfer_id(1));
  if (!receiver.expect<FetchFailed>().region_safe) {
    receiver.expect<FetchReleased>();
  }
  ::unsetenv("FAKE_CUDA_COPY_DELAY_US");
  to.fill(2, 0, 64);
  EXPECT_FALSE(receiver.next(milliseconds(300)));
  EXPECT_TRUE(to.holds(2, 0, 64));
  sender.expect<OfferFailed>();
}

TEST(KvGpu, GrantsThatLieAreRefused) {
  const auto gpu = *Gpu::open(PDJOB_FAKE_CUDART, 0);
  NoStream stream;
  CudaIpcTransport transport(stream, *gpu);
  TestRegion target({}, TestRegion::Memory::kGpu);
  const Region& region = target.region();
  Grant grant{.id = transfer_id(1),
              .rows = 64,
              .shared_bytes = region.shared_bytes,
              .shared_id = region.shared_id};
  for (const Window& window : region.windows) {
    grant.windows.push_back({window.row_bytes, window.shared_offset});
  }
  const auto open = [&](const Grant& granted, int fd) {
    return transport.open_sender(granted, Fd(fd < 0 ? -1 : ::dup(fd)));
  };
  EXPECT_EQ(open(grant, -1).error().message, "a grant came without its memory");
  Grant beyond = grant;
  beyond.windows.back().shared_offset += 1;
  EXPECT_EQ(open(beyond, region.shared_fd).error().message,
            "a granted window lies outside of its memory");
  Grant bigger = grant;
  bigger.shared_bytes = uint64_t{1} << 40;
  EXPECT_EQ(open(bigger, region.shared_fd).error().code, ErrorCode::kInvalidArgument);
  const Fd memfd(::memfd_create("other", MFD_CLOEXEC));
  Grant other = grant;
  other.shared_id = 1'000'000;
  EXPECT_EQ(open(other, memfd.get()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(open(grant, region.shared_fd));
  EXPECT_TRUE(open(grant, region.shared_fd));  // Uses the existing mapping.
}

TEST(KvGpu, NothingIsLeftOfAnEndpoint) {
  transport_taken(0, 0);  // The fixture's own GPU keeps what it made.
  const int objects = fakecudart_objects();
  for (int i = 0; i < 3; ++i) {
    transport_taken(0, 0);
    transport_taken({}, 0);
  }
  EXPECT_EQ(fakecudart_objects(), objects);
  EXPECT_EQ(fakecudart_violations(), 0);
}

}  // namespace
}  // namespace pdjob::kvtransfer
