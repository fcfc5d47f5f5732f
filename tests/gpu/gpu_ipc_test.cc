// KV over cuda_ipc between two processes on one GPU. `./dev gpu` runs it on the real libraries.
// Everywhere else it runs on the double of tests/support, which proves the test, not CUDA.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/kvtransfer/forked_peer.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::seconds;

constexpr Duration kDeadline = seconds(60);
constexpr TestRegion::Shape kSmall{.windows = 4, .rows = 64, .row_bytes = 1024};

bool is_real() { return std::getenv("PDJOB_GPU_CUDART") != nullptr; }

// The layout of a model with 64 windows. 1.07 GB, or 8.5 GB: a GPU copies 1 GB in a millisecond,
// which would measure the messages. On the double, which is slow: 17 MB.
TestRegion::Shape big() {
  return {.windows = 64, .rows = is_real() ? 10'922U : 170U, .row_bytes = 1024};
}
TestRegion::Shape huge() {
  return {.windows = 64, .rows = is_real() ? 87'000U : 170U, .row_bytes = 1024};
}

TestEndpoint::Options options(const std::string& engine_id) {
  NcclConfig nccl = fake_nccl();
  nccl.cuda.library = gpu_library();
  return {.engine_id = engine_id, .transport = TransportKind::kCudaIpc, .nccl = nccl, .device = 0};
}

// Offers rows under ids 1, 2, ... for each order: "next" commits them, "forever" never does.
void serve(Pipe& to_test, Pipe& from_test, TestRegion::Shape shape) {
  TestEndpoint sender(options("prefill"));
  TestRegion source(shape, TestRegion::Memory::kGpu);
  source.fill(1, 0, shape.rows);
  to_test.say(sender->address());
  std::string order = from_test.hear();
  for (uint64_t number = 1; !order.empty(); ++number, order = from_test.hear()) {
    sender->offer(transfer_id(number), source.region(), in(kDeadline));
    sender->rows_ready(transfer_id(number), shape.rows);
    if (order == "next") {
      sender->commit(transfer_id(number), shape.rows, {});
    } else {
      to_test.say("moving");
    }
  }
}

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Runs one transfer. Returns the time from the grant until the digest is verified.
Duration fetch(ForkedPeer& peer, const EndpointAddress& address, TestEndpoint& receiver,
               uint64_t number, TestRegion& to) {
  peer.from_test.say("next");
  receiver->fetch(transfer_id(number), address, to.region(), to.region().rows_max, in(kDeadline));
  const auto done = receiver.expect<FetchDone>(kDeadline);
  EXPECT_EQ(done.transport, "cuda_ipc");
  return done.duration;
}

// Copies the same bytes within this process's GPU memory. Returns the time.
Duration copy_alone(Gpu& gpu, const TestRegion& from, const TestRegion& to) {
  std::vector<GpuCopy> copies;
  for (size_t i = 0; i < from.region().windows.size(); ++i) {
    const Window& window = from.region().windows[i];
    copies.push_back({.to = to.region().windows[i].base,
                      .from = window.base,
                      .bytes = uint64_t{window.row_bytes} * from.region().rows_max});
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(gpu.copy(copies));
  return std::chrono::steady_clock::now() - begin;
}

TEST(GpuIpc, MovesRowsOverANewLinkAndOverAnOldOne) {
  ForkedPeer peer([](Pipe& to_test, Pipe& from_test) { serve(to_test, from_test, kSmall); });
  TestEndpoint receiver(options("decode"));
  const EndpointAddress address = peer.to_test.hear_address();
  for (uint64_t number = 1; number <= 2; ++number) {
    TestRegion to(kSmall, TestRegion::Memory::kGpu);
    const Duration took = fetch(peer, address, receiver, number, to);
    EXPECT_TRUE(to.holds(1, 0, kSmall.rows));
    std::printf("gpu: cuda_ipc: 280 KB, %s: %.3f ms\n",
                number == 1 ? "the first of a link" : "the next", 1e3 * seconds_of(took));
  }
}

TEST(GpuIpc, BandwidthBesideACopyWithinOneProcess) {
  ForkedPeer peer([](Pipe& to_test, Pipe& from_test) { serve(to_test, from_test, huge()); });
  TestEndpoint receiver(options("decode"));
  const EndpointAddress address = peer.to_test.hear_address();
  const auto gpu = *Gpu::open(gpu_library(), 0);
  TestRegion to(huge(), TestRegion::Memory::kGpu), local(huge(), TestRegion::Memory::kGpu);
  const double bytes = static_cast<double>(to.row_bytes()) * huge().rows;
  fetch(peer, address, receiver, 1, to);  // Opens the link and maps the memory.
  EXPECT_TRUE(to.holds(1, 0, 64));        // The rest: both ends' sums.
  for (uint64_t round = 0; round < 5; ++round) {
    const double moved = seconds_of(fetch(peer, address, receiver, 2 + round, to));
    const double copied = seconds_of(copy_alone(*gpu, to, local));
    std::printf("gpu: cuda_ipc: %.1f GB/s with both sums, a copy alone %.1f GB/s: %.0f %%\n",
                bytes / moved / 1e9, bytes / copied / 1e9, 100 * copied / moved);
  }
}

// cuda_ipc relies on this rule of the driver: once a process is gone, none of its copies can land.
TEST(GpuIpc, KilledSenderWritesNothingMore) {
  std::list<ForkedPeer> peers =
      forked_peers(5, [](Pipe& to_test, Pipe& from_test) { serve(to_test, from_test, big()); });
  for (ForkedPeer& peer : peers) {
    TestEndpoint receiver(options("decode"));
    TestRegion to(big(), TestRegion::Memory::kGpu);
    peer.from_test.say("forever");
    receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), big().rows,
                    in(kDeadline));
    ASSERT_EQ(peer.to_test.hear(), "moving");
    const auto killed = std::chrono::steady_clock::now();
    peer.kill();
    await_safe(receiver, receiver.expect<FetchFailed>(kDeadline));
    std::printf("gpu: cuda_ipc: rows of a killed sender are given back after %.1f ms\n",
                1e3 * seconds_of(std::chrono::steady_clock::now() - killed));
    to.clear();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(to.is_clear());
  }
}

}  // namespace
}  // namespace pdjob::kvtransfer
