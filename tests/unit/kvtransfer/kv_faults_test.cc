// Peers that die or stop: forked processes that are really killed and stopped.
#include <functional>
#include <optional>
#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "common/os/real_clock.h"
#include "tests/support/fault_transport.h"
#include "tests/unit/kvtransfer/forked_peer.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);
constexpr TestRegion::Shape kBig{.windows = 4, .rows = 2048, .row_bytes = 512};

class KvFaults : public testing::TestWithParam<Way> {
 protected:
  static bool peer_writes() { return GetParam().peer_writes(); }
  static TestRegion source(TestRegion::Shape shape) {
    return TestRegion(shape, GetParam().source());
  }
  static TestRegion target(TestRegion::Shape shape) {
    return TestRegion(shape, GetParam().target());
  }
  // Both ends have their rows in the same kind of memory.
  static TestEndpoint::Options options(const std::string& engine_id) {
    NcclConfig nccl = fake_nccl();
    // The longest time that a stopped peer may hold rows of our GPU.
    nccl.slab_timeout = seconds(3);
    return {.engine_id = engine_id,
            .transport = GetParam().transport,
            .nccl = nccl,
            .device = GetParam().sender_device()};
  }
  static void expect_safe(TestEndpoint& receiver, const FetchFailed& failed, bool safe = true) {
    if (GetParam().writes_late()) {
      await_safe(receiver, failed);
    } else {
      EXPECT_EQ(failed.region_safe, safe);
    }
  }
  // Offers transfer 1 with half of its rows ready. Says "moving" when that half is sent. Then sends
  // a whole transfer for each number that it hears.
  static void send_half(Pipe& to_test, Pipe& from_test) {
    TestEndpoint sender(options("prefill"));
    TestRegion from = source(kBig);
    from.fill(1, 0, kBig.rows);
    sender->offer(transfer_id(1), from.region(), in(kDeadline));
    sender->rows_ready(transfer_id(1), kBig.rows / 2);
    to_test.say(sender->address());
    EXPECT_TRUE(becomes_true(
        [&] { return sender->stats().bytes_sent >= kBig.rows / 2 * from.row_bytes(); }));
    to_test.say("moving");
    for (std::string line = from_test.hear(); !line.empty(); line = from_test.hear()) {
      sender->offer(transfer_id(std::stoull(line)), from.region(), in(kDeadline));
      sender->commit(transfer_id(std::stoull(line)), kBig.rows, {});
    }
  }
};

TEST_P(KvFaults, MovesBetweenProcesses) {
  ForkedPeer peer(send_half);
  TestEndpoint receiver(options("decode"));
  const EndpointAddress address = peer.to_test.hear_address();
  TestRegion to = target(kBig), half = target(kBig);
  receiver->fetch(transfer_id(1), address, half.region(), kBig.rows, in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.from_test.say("2");
  receiver->fetch(transfer_id(2), address, to.region(), kBig.rows, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchDone>().rows, kBig.rows);
  EXPECT_TRUE(to.holds(1, 0, kBig.rows));
}

TEST_P(KvFaults, KilledSenderFailsTheFetchAtOnce) {
  ForkedPeer peer(send_half);
  TestEndpoint receiver(options("decode"));
  TestRegion to = target(kBig);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.kill();
  const auto failed = receiver.expect<FetchFailed>(seconds(2));
  EXPECT_EQ(failed.error.code, ErrorCode::kUnavailable);
  if (GetParam().transport == TransportKind::kCudaIpc) {
    await_safe(receiver, failed);  // Its GPU writes until the process is gone.
  } else {
    expect_safe(receiver, failed);
  }
  EXPECT_TRUE(becomes_true([&] { return receiver->stats().links == 0; }));
}

TEST_P(KvFaults, KilledReceiverFailsTheOfferAtOnce) {
  ForkedPeer peer([](Pipe& /*to_test*/, Pipe& from_test) {
    TestRegion to = target(kBig);
    TestEndpoint receiver(options("decode"));
    receiver->fetch(transfer_id(1), from_test.hear_address(), to.region(), kBig.rows,
                    in(kDeadline));
    ::pause();
  });
  TestEndpoint sender(options("prefill"));
  TestRegion from = source(kBig);
  sender->offer(transfer_id(1), from.region(), in(kDeadline));
  sender->rows_ready(transfer_id(1), kBig.rows / 2);
  peer.from_test.say(sender->address());
  EXPECT_TRUE(
      becomes_true([&] { return sender->stats().bytes_sent >= kBig.rows / 2 * from.row_bytes(); }));
  peer.kill();
  EXPECT_EQ(sender.expect<OfferFailed>(seconds(2)).error.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(becomes_true([&] { return sender->stats().links == 0; }));
}

TEST_P(KvFaults, StoppedSenderCannotHoldAFetchPastItsDeadline) {
  ForkedPeer peer(send_half);
  TestEndpoint receiver(options("decode"));
  TestRegion to = target(kBig);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(milliseconds(1500)));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.stop();
  const auto failed = receiver.expect<FetchFailed>(seconds(5));
  EXPECT_EQ(failed.error.code, ErrorCode::kTimeout);
  expect_safe(receiver, failed, !peer_writes());
  if (peer_writes()) {
    // The stopped sender may still wake up and write.
    EXPECT_FALSE(receiver.next(milliseconds(100)));
    peer.signal(SIGCONT);
    receiver.expect<FetchReleased>();
  }
}

TEST_P(KvFaults, StoppedAndThenKilledSenderReleasesTheRows) {
  if (!peer_writes()) {
    GTEST_SKIP() << "tcp is safe at once";
  }
  ForkedPeer peer(send_half);
  TestEndpoint receiver(options("decode"));
  TestRegion to = target(kBig);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.stop();
  receiver->cancel(transfer_id(1));
  EXPECT_FALSE(receiver.expect<FetchFailed>().region_safe);
  EXPECT_FALSE(receiver.next(milliseconds(100)));
  peer.kill();
  receiver.expect<FetchReleased>(seconds(2));
}

TEST_P(KvFaults, SilentLinkIsGivenUpAndOpenedAnewWhenThePeerIsBack) {
  ForkedPeer peer(send_half);
  TestEndpoint::Options impatient = options("decode");
  impatient.connect_timeout = milliseconds(300);
  TestEndpoint receiver(impatient);
  const EndpointAddress address = peer.to_test.hear_address();
  TestRegion to = target(kBig), again = target(kBig);
  receiver->fetch(transfer_id(1), address, to.region(), kBig.rows, in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.stop();
  const auto failed = receiver.expect<FetchFailed>(seconds(5));  // Long before its deadline.
  // Rows that were announced may be missing. This stall may be noticed before the silence.
  EXPECT_TRUE(
      failed.error.code == ErrorCode::kUnavailable ||
      (GetParam().transport != TransportKind::kTcp && failed.error.code == ErrorCode::kTimeout))
      << failed.error.message;
  expect_safe(receiver, failed, !peer_writes());
  receiver->fetch(transfer_id(2), address, again.region(), kBig.rows, in(kDeadline));
  const auto second = receiver.expect<FetchFailed>(seconds(5));
  EXPECT_EQ(second.error.code, ErrorCode::kUnavailable);
  peer.signal(SIGCONT);
  // After a stall, the second one may have reached the same link.
  for (const FetchFailed& each : {failed, second}) {
    if (peer_writes() && !each.region_safe) {
      EXPECT_EQ(receiver.expect<FetchReleased>().id, each.id);
    }
  }
  peer.from_test.say("3");
  receiver->fetch(transfer_id(3), address, again.region(), kBig.rows, in(kDeadline));
  receiver.expect<FetchDone>();
  EXPECT_TRUE(again.holds(1, 0, kBig.rows));
}

TEST_P(KvFaults, StoppedReceiverLosesItsLease) {
  ForkedPeer peer([](Pipe& /*to_test*/, Pipe& from_test) {
    TestRegion to = target(kBig);
    TestEndpoint receiver(options("decode"));
    receiver->fetch(transfer_id(1), from_test.hear_address(), to.region(), kBig.rows,
                    in(kDeadline));
    ::pause();
  });
  TestEndpoint::Options strict = options("prefill");
  strict.lease = milliseconds(500);
  TestEndpoint sender(strict);
  TestRegion from = source(kBig);
  sender->offer(transfer_id(1), from.region(), in(milliseconds(500)));
  sender->rows_ready(transfer_id(1), 10);
  peer.from_test.say(sender->address());
  EXPECT_TRUE(becomes_true([&] { return sender->stats().bytes_sent > 0; }));
  peer.stop();
  EXPECT_EQ(sender.expect<OfferFailed>(seconds(5)).error.code, ErrorCode::kTimeout);
}

TEST_P(KvFaults, WaitingReceiverKeepsItsLease) {
  TestEndpoint::Options strict = options("prefill"), patient = options("decode");
  strict.lease = patient.lease = seconds(1);
  TestEndpoint sender(strict), receiver(patient);
  TestRegion from = source({});
  TestRegion to = target({});
  sender->offer(transfer_id(1), from.region(), in(seconds(1)));
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  EXPECT_FALSE(sender.next(seconds(2)));
  sender->commit(transfer_id(1), 64, {});
  receiver.expect<FetchDone>();
}

// --- in the middle of a range

// Transfer 1 stalls after half of its second half. Other transfers are whole.
TransportOpener stalls_half_way(TransportKind transport) {
  // The first half is one range; over tcp it is five ranges of 512 KiB.
  const uint32_t range = transport == TransportKind::kTcp ? 5 : 1;
  return with_faults([range](TransferId id) {
    return FaultPlan{.kind = id == transfer_id(1) ? FaultKind::kStall : FaultKind::kNone,
                     .range = range};
  });
}

void send_one_and_a_half_ranges(TestEndpoint& sender, const TestRegion& from) {
  sender->offer(transfer_id(1), from.region(), in(kDeadline));
  sender->rows_ready(transfer_id(1), kBig.rows / 2);
  const uint64_t half = kBig.rows / 2 * from.row_bytes();
  EXPECT_TRUE(becomes_true([&] { return sender->stats().bytes_sent >= half; }));
  sender->rows_ready(transfer_id(1), kBig.rows);
}

constexpr TestRegion::Shape kHuge{.windows = 4, .rows = 16384, .row_bytes = 512};

class KvFaultsInARange : public KvFaults {
 protected:
  // Gives the rows to a transfer from another sender. They must keep that transfer's content.
  static void expect_ours(TestEndpoint& receiver, const TestRegion& to,
                          const std::function<void()>& meanwhile) {
    TestEndpoint other(options("other"));
    TestRegion from = source(kBig);
    from.fill(2, 0, kBig.rows);
    other->offer(transfer_id(2), from.region(), in(kDeadline));
    other->commit(transfer_id(2), kBig.rows, {});
    receiver->fetch(transfer_id(2), other->address(), to.region(), kBig.rows, in(kDeadline));
    receiver.expect<FetchDone>();
    other.expect<OfferDone>();
    meanwhile();
    for (const Instant end = in(milliseconds(300)); real_now() < end;) {
      ASSERT_TRUE(to.holds(2, 0, kBig.rows)) << "a late writer changed rows that were given on";
    }
  }
  // Waits until the copy has reached that row. Over tcp only our own kv thread knows, so it just
  // sleeps.
  static void await_copy(const TestRegion& to, uint32_t row) {
    if (peer_writes()) {
      const Window& first = to.region().windows[0];
      const auto* bytes =
          reinterpret_cast<const uint64_t*>(first.base + size_t{row} * first.row_bytes);
      EXPECT_TRUE(becomes_true([&] { return *bytes != 0; }));
    } else {
      std::this_thread::sleep_for(milliseconds(50));
    }
  }
  static void send_and_stall(Pipe& to_test, Pipe& from_test) {
    TestEndpoint::Options faulty = options("prefill");
    faulty.open_transport = stalls_half_way(GetParam().transport);
    TestEndpoint sender(faulty);
    TestRegion from = source(kBig);
    from.fill(1, 0, kBig.rows);
    to_test.say(sender->address());
    send_one_and_a_half_ranges(sender, from);
    from_test.hear();
  }
};

TEST_P(KvFaultsInARange, KilledSenderLeavesTheRowsToOthers) {
  ForkedPeer peer(send_and_stall);
  TestEndpoint receiver(options("decode"));
  TestRegion to = target(kBig);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(kDeadline));
  await_copy(to, kBig.rows / 2);
  peer.kill();
  const auto failed = receiver.expect<FetchFailed>(seconds(2));
  EXPECT_EQ(failed.error.code, ErrorCode::kUnavailable);
  expect_safe(receiver, failed);
  expect_ours(receiver, to, [] {});
}

// The sender is stopped while it copies, and continues copying when it wakes up.
TEST_P(KvFaultsInARange, LateWriterCannotReachRowsThatWereGivenOn) {
  ForkedPeer peer([](Pipe& to_test, Pipe& from_test) {
    TestEndpoint sender(options("prefill"));
    TestRegion from = source(kBig);
    from.fill(1, 0, kBig.rows);
    to_test.say(sender->address());
    from_test.hear();
    sender->offer(transfer_id(1), from.region(), in(kDeadline));
    sender->rows_ready(transfer_id(1), kBig.rows);
    from_test.hear();
  });
  TestEndpoint receiver(options("decode"));
  TestRegion to = target(kBig);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(kDeadline));
  peer.from_test.say("go");
  await_copy(to, 0);
  peer.stop();
  receiver->cancel(transfer_id(1));
  expect_safe(receiver, receiver.expect<FetchFailed>(), !peer_writes());
  if (peer_writes()) {
    EXPECT_FALSE(receiver.next(milliseconds(100)));
    peer.signal(SIGCONT);
    receiver.expect<FetchReleased>();
  }
  expect_ours(receiver, to, [&] { peer.signal(SIGCONT); });
}

TEST_P(KvFaultsInARange, KilledReceiverFailsTheOfferAndTheNextOneIsServed) {
  ForkedPeer peer([](Pipe& to_test, Pipe& from_test) {
    TestRegion to = target(kBig);
    TestEndpoint receiver(options("decode"));
    receiver->fetch(transfer_id(1), from_test.hear_address(), to.region(), kBig.rows,
                    in(kDeadline));
    await_copy(to, kBig.rows / 2);
    to_test.say("half way");
    from_test.hear();
  });
  TestEndpoint::Options faulty = options("prefill");
  faulty.open_transport = stalls_half_way(GetParam().transport);
  TestEndpoint sender(faulty);
  TestRegion from = source(kBig);
  from.fill(1, 0, kBig.rows);
  peer.from_test.say(sender->address());
  send_one_and_a_half_ranges(sender, from);
  ASSERT_EQ(peer.to_test.hear(), "half way");
  peer.kill();
  EXPECT_EQ(sender.expect<OfferFailed>(seconds(2)).error.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(becomes_true([&] { return sender->stats().links == 0; }));
  TestEndpoint receiver(options("decode-2"));
  TestRegion to = target(kBig);
  sender->offer(transfer_id(2), from.region(), in(kDeadline));
  sender->commit(transfer_id(2), kBig.rows, {});
  receiver->fetch(transfer_id(2), sender->address(), to.region(), kBig.rows, in(kDeadline));
  receiver.expect<FetchDone>();
  EXPECT_TRUE(to.holds(1, 0, kBig.rows));
}

// tcp: rows wait for the stopped reader. shm: all rows move, but their confirmation never comes.
TEST_P(KvFaultsInARange, StoppedReceiverFailsTheOfferAndIsToldWhenItWakesUp) {
  ForkedPeer peer([](Pipe& to_test, Pipe& from_test) {
    TestRegion to = target(kHuge);
    TestEndpoint receiver(options("decode"));
    receiver->fetch(transfer_id(1), from_test.hear_address(), to.region(), kHuge.rows,
                    in(kDeadline));
    const std::optional<EndpointEvent> event = receiver.next();
    const auto* failed = event ? std::get_if<FetchFailed>(&*event) : nullptr;
    to_test.say(failed != nullptr ? "failed" : "did not fail");
    from_test.hear();
  });
  TestEndpoint::Options strict = options("prefill");
  strict.connect_timeout = milliseconds(300);
  strict.lease = milliseconds(900);
  TestEndpoint sender(strict);
  TestRegion from(kHuge);
  peer.from_test.say(sender->address());
  EXPECT_TRUE(sender.becomes_awaited(transfer_id(1), true));
  peer.stop();
  sender->offer(transfer_id(1), from.region(), in(milliseconds(900)));
  sender->commit(transfer_id(1), kHuge.rows, {});
  const auto failed = sender.expect<OfferFailed>(seconds(5));
  EXPECT_EQ(failed.error.code, ErrorCode::kTimeout);
  EXPECT_EQ(failed.error.message, peer_writes()
                                      ? "the receiver's lease of the KV rows ended"
                                      : "the KV rows stopped on their way to the receiver");
  peer.signal(SIGCONT);
  EXPECT_EQ(peer.to_test.hear(), "failed");
}

// Stands for a process that dies: the kernel closes its descriptors before its GPU's work ends, and
// only then it is gone. Its first thread ends, its sockets close, and a copy still lands.
void send_and_die_slowly(Pipe& to_test, Pipe& from_test) {
  ::setenv("FAKE_CUDA_COPY_DELAY_US", "400000", 1);
  TestEndpoint sender({.engine_id = "prefill", .transport = TransportKind::kCudaIpc, .device = 0});
  TestRegion from(kBig, TestRegion::Memory::kGpu);
  from.fill(1, 0, kBig.rows);
  to_test.say(sender->address());
  EXPECT_TRUE(sender.becomes_awaited(transfer_id(1), true));
  sender->offer(transfer_id(1), from.region(), in(kDeadline));
  sender->rows_ready(transfer_id(1), kBig.rows);
  std::this_thread::sleep_for(milliseconds(100));  // The copy is under way.
  to_test.say("moving");
  from_test.hear();
  std::thread([] {
    std::this_thread::sleep_for(milliseconds(50));
    for (int fd = 3; fd < 1024; ++fd) {
      if (struct stat file{}; ::fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode)) {
        ::close(fd);
      }
    }
    std::this_thread::sleep_for(milliseconds(800));
    ::_exit(0);
  }).detach();
  ::syscall(SYS_exit, 0);
}

TEST(KvFaultsOfGpus, RowsOfASenderThatDiesAreGivenBackOnlyWhenItIsGone) {
  ForkedPeer peer(send_and_die_slowly);
  TestEndpoint receiver({.engine_id = "decode", .transport = TransportKind::kCudaIpc, .device = 0});
  TestRegion to(kBig, TestRegion::Memory::kGpu);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.from_test.say("die");
  const auto failed = receiver.expect<FetchFailed>(seconds(2));
  EXPECT_FALSE(failed.region_safe);
  await_safe(receiver, failed);
  to.clear();
  std::this_thread::sleep_for(seconds(1));
  EXPECT_TRUE(to.is_clear()) << "a late copy landed";
}

INSTANTIATE_TEST_SUITE_P(Transports, KvFaults,
                         testing::Values(kShmWay, kTcpWay, kNcclWay, kNcclGpusWay, kCudaIpcWay),
                         [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(Transports, KvFaultsInARange, testing::Values(kShmWay, kTcpWay),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace pdjob::kvtransfer
