// KV over NCCL between two processes on one GPU. `./dev gpu` runs it on the real libraries.
// Everywhere else it runs on the doubles of tests/support, which proves the test, not NCCL.
//
// NCCL refuses two ranks on one GPU of one host. So each process claims to be another host, and the
// ranks meet over sockets on loopback. That is slow, but every error and abort is real.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>

#include <gtest/gtest.h>

#include "tests/unit/kvtransfer/forked_peer.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::seconds;

constexpr Duration kDeadline = seconds(60);
constexpr TestRegion::Shape kSmall{.windows = 4, .rows = 64, .row_bytes = 1024};

const char* setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

// 537 MB; on the doubles, which are slow: 17 MB.
const TestRegion::Shape kBig{.windows = 4,
                             .rows = std::getenv("PDJOB_GPU_NCCL") != nullptr ? 131'072U : 4096U,
                             .row_bytes = 1024};

using Memory = TestRegion::Memory;

const char* name_of(Memory memory) { return memory == Memory::kGpu ? "GPU" : "host"; }

TestEndpoint::Options options(const std::string& engine_id, Memory memory, uint32_t ctas_max = 4) {
  ::setenv("NCCL_HOSTID", engine_id.c_str(), 1);
  ::setenv("NCCL_NET", "Socket", 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  ::setenv("NCCL_IB_DISABLE", "1", 1);
  ::setenv("NCCL_RAS_ENABLE", "0", 1);
  NcclConfig nccl = fake_nccl();
  nccl.library = setting("PDJOB_GPU_NCCL", nccl.library.c_str());
  nccl.cuda.library = setting("PDJOB_GPU_CUDART", nccl.cuda.library.c_str());
  nccl.cuda.device = 0;
  nccl.ctas_max = ctas_max;
  return {.engine_id = engine_id,
          .transport = TransportKind::kNccl,
          .nccl = nccl,
          .device = memory == Memory::kGpu ? std::optional(0U) : std::nullopt};
}

// Offers rows under ids 1, 2, ... for each order: "next" commits them, "forever" never does. It
// reports when the first of them have left.
void serve(Pipe& to_test, Pipe& from_test, const TestEndpoint::Options& options,
           TestRegion::Shape shape) {
  TestEndpoint sender(options);
  TestRegion source(shape, options.device ? Memory::kGpu : Memory::kPrivate);
  source.fill(1, 0, shape.rows);
  to_test.say(sender->address());
  std::string order = from_test.hear();
  for (uint64_t number = 1; !order.empty(); ++number, order = from_test.hear()) {
    sender->offer(transfer_id(number), source.region(), in(kDeadline));
    sender->rows_ready(transfer_id(number), shape.rows);
    if (order == "next") {
      sender->commit(transfer_id(number), shape.rows, {});
    } else if (becomes_true([&] { return sender->stats().bytes_sent > 0; })) {
      to_test.say("moving");
    }
  }
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Runs one transfer of `shape`. Returns the time that it took.
double fetch(ForkedPeer& peer, const EndpointAddress& address, TestEndpoint& receiver,
             uint64_t number, TestRegion::Shape shape, Memory memory) {
  TestRegion to(shape, memory);
  const auto begin = std::chrono::steady_clock::now();
  peer.from_test.say("next");
  receiver->fetch(transfer_id(number), address, to.region(), shape.rows, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchDone>(kDeadline).transport, "nccl");
  const double took = milliseconds_since(begin);
  EXPECT_TRUE(to.holds(1, 0, shape.rows));
  return took;
}

// The parameter is where the rows are, on both ends.
class GpuNccl : public testing::TestWithParam<Memory> {
 protected:
  // CUDA does not survive a fork, so peers are forked first.
  static ForkedPeer& serving(std::list<ForkedPeer>& peers, const std::string& engine_id,
                             TestRegion::Shape shape, uint32_t ctas_max = 4) {
    return peers.emplace_back([=](Pipe& to_test, Pipe& from_test) {
      serve(to_test, from_test, options(engine_id, GetParam(), ctas_max), shape);
    });
  }
};

TEST_P(GpuNccl, MovesRowsOverANewLinkAndOverAnOldOne) {
  std::list<ForkedPeer> peers;
  ForkedPeer& peer = serving(peers, "prefill", kSmall);
  TestEndpoint receiver(options("decode", GetParam()));
  const EndpointAddress address = peer.to_test.hear_address();
  const double first = fetch(peer, address, receiver, 1, kSmall, GetParam());
  const double second = fetch(peer, address, receiver, 2, kSmall, GetParam());
  std::printf(
      "gpu: nccl, rows in %s memory: the first over a new link after %.1f ms, over an old one %.1f "
      "ms\n",
      name_of(GetParam()), first, second);
}

TEST_P(GpuNccl, BandwidthAgainstCtas) {
  constexpr std::array kCtas = {1U, 2U, 4U, 8U};
  std::list<ForkedPeer> peers;
  for (const uint32_t ctas_max : kCtas) {
    serving(peers, "prefill", kBig, ctas_max);
  }
  for (const uint32_t ctas_max : kCtas) {
    ForkedPeer& peer = peers.front();
    TestEndpoint receiver(options("decode", GetParam(), ctas_max));
    const EndpointAddress address = peer.to_test.hear_address();
    fetch(peer, address, receiver, 1, kBig, GetParam());  // Opens the link.
    const double took = fetch(peer, address, receiver, 2, kBig, GetParam());
    const double bytes = static_cast<double>(TestRegion(kBig).row_bytes()) * kBig.rows;
    std::printf("gpu: nccl, rows in %s memory: maxCTAs %u: %.2f GB/s\n", name_of(GetParam()),
                ctas_max, bytes / took / 1e6);
    peers.pop_front();
  }
}

TEST_P(GpuNccl, AbortsWhenThePeerIsKilledAndServesTheNext) {
  std::list<ForkedPeer> peers;
  ForkedPeer& peer = serving(peers, "prefill", kBig);
  ForkedPeer& next = serving(peers, "prefill-2", kSmall);
  TestRegion to(kBig, GetParam());
  TestEndpoint receiver(options("decode", GetParam()));
  peer.from_test.say("forever");
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.kill();
  const auto killed = std::chrono::steady_clock::now();
  const auto failed = receiver.expect<FetchFailed>(kDeadline);
  EXPECT_TRUE(failed.region_safe || GetParam() == Memory::kGpu);
  std::printf("gpu: nccl, rows in %s memory: a killed peer is noticed after %.1f ms\n",
              name_of(GetParam()), milliseconds_since(killed));
  await_safe(receiver, failed);
  to.clear();
  std::printf("gpu: nccl, rows in %s memory: they are given back after %.1f ms\n",
              name_of(GetParam()), milliseconds_since(killed));
  fetch(next, next.to_test.hear_address(), receiver, 1, kSmall, GetParam());
  std::printf("gpu: nccl, rows in %s memory: another peer serves after %.1f ms\n",
              name_of(GetParam()), milliseconds_since(killed));
  EXPECT_TRUE(to.is_clear());
}

INSTANTIATE_TEST_SUITE_P(Memories, GpuNccl, testing::Values(Memory::kPrivate, Memory::kGpu),
                         [](const auto& param) { return std::string(name_of(param.param)); });

}  // namespace
}  // namespace pdjob::kvtransfer
