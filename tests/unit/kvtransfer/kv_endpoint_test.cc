#include "kvtransfer/kv_endpoint.h"

#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/files/fd.h"
#include "common/limits.h"
#include "kvtransfer/link/transport.h"
#include "kvtransfer/open_transport.h"
#include "tests/support/fake_cudart.h"
#include "tests/support/fake_nccl.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);

// Every test of moving rows runs over each transport.
class KvEndpointMoves : public testing::TestWithParam<Way> {
 protected:
  void TearDown() override {
    EXPECT_EQ(fakenccl_violations(), 0);
    EXPECT_EQ(fakecudart_violations(), 0);
  }
  static bool peer_writes() { return GetParam().peer_writes(); }
  static TestRegion rows(TestRegion::Shape shape) { return TestRegion(shape, GetParam().source()); }
  static TestRegion target(TestRegion::Shape shape) {
    return TestRegion(shape, GetParam().target());
  }
  const char* name() const { return name_of(GetParam().transport); }

  TestEndpoint sender_{{.engine_id = "prefill",
                        .transport = GetParam().transport,
                        .tcp = GetParam().tcp,
                        .device = GetParam().sender_device()}};
  TestEndpoint receiver_{{.engine_id = "decode",
                          .transport = GetParam().transport,
                          .tcp = GetParam().tcp,
                          .device = GetParam().receiver_device()}};
};

TEST_P(KvEndpointMoves, AllRowsAndTheTail) {
  TestRegion source = rows({});
  TestRegion to = target({});
  source.fill(7, 0, 64);
  sender_->offer(transfer_id(1), source.region(), in(kDeadline));
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(kDeadline));
  const std::vector<std::byte> tail(1000, std::byte{42});
  sender_->commit(transfer_id(1), 64, tail);
  const auto done = receiver_.expect<FetchDone>();
  EXPECT_EQ(done.id, transfer_id(1));
  EXPECT_EQ(done.rows, 64);
  EXPECT_EQ(done.bytes, 64 * source.row_bytes());
  EXPECT_EQ(done.tail, tail);
  EXPECT_EQ(done.transport, name());
  EXPECT_GT(done.visible, Duration(0));
  EXPECT_TRUE(to.holds(7, 0, 64));
  EXPECT_EQ(sender_.expect<OfferDone>().bytes, done.bytes);
}

TEST_P(KvEndpointMoves, RowsOfAnOfferThatComesLater) {
  TestRegion source = rows({});
  TestRegion to = target({});
  source.fill(7, 0, 64);
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(kDeadline));
  EXPECT_FALSE(receiver_.next(milliseconds(50)));
  sender_->offer(transfer_id(1), source.region(), in(kDeadline));
  sender_->commit(transfer_id(1), 64, {});
  receiver_.expect<FetchDone>();
  EXPECT_TRUE(to.holds(7, 0, 64));
  sender_.expect<OfferDone>();
}

TEST_P(KvEndpointMoves, SenderIsToldWhoseRowsAreAwaited) {
  TestRegion source = rows({});
  TestRegion to = target({});
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(kDeadline));
  EXPECT_TRUE(sender_.becomes_awaited(transfer_id(1), true));
  sender_->offer(transfer_id(1), source.region(), in(kDeadline));
  EXPECT_TRUE(sender_.becomes_awaited(transfer_id(1), false));
  receiver_->cancel(transfer_id(1));
  sender_.expect<OfferFailed>();

  TestRegion other = target({});
  receiver_->fetch(transfer_id(2), sender_->address(), other.region(), 64, in(kDeadline));
  EXPECT_TRUE(sender_.becomes_awaited(transfer_id(2), true));
  receiver_->cancel(transfer_id(2));
  EXPECT_TRUE(sender_.becomes_awaited(transfer_id(2), false));
}

TEST_P(KvEndpointMoves, SenderIsToldThatAReceiverHasGone) {
  TestRegion to = target({});
  {
    TestEndpoint receiver({.engine_id = "short-lived",
                           .transport = GetParam().transport,
                           .tcp = GetParam().tcp,
                           .device = GetParam().receiver_device()});
    receiver->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(kDeadline));
    EXPECT_TRUE(sender_.becomes_awaited(transfer_id(1), true));
  }
  EXPECT_TRUE(sender_.becomes_awaited(transfer_id(1), false));
}

TEST_P(KvEndpointMoves, ManySizesOneAfterTheOther) {
  uint64_t number = 0;
  for (const TestRegion::Shape shape :
       {TestRegion::Shape{.windows = 1, .rows = 1, .row_bytes = 1},
        TestRegion::Shape{.windows = 1, .rows = 7, .row_bytes = 3},
        TestRegion::Shape{.windows = 60, .rows = 100, .row_bytes = 384},
        TestRegion::Shape{.windows = 2, .rows = 3000, .row_bytes = 1024},
        TestRegion::Shape{.windows = 3, .rows = 2, .row_bytes = 3 << 20}}) {
    TestRegion source = rows(shape);
    TestRegion to = target(shape);
    source.fill(++number, 0, shape.rows);
    sender_->offer(transfer_id(number), source.region(), in(kDeadline));
    receiver_->fetch(transfer_id(number), sender_->address(), to.region(), shape.rows,
                     in(kDeadline));
    sender_->commit(transfer_id(number), shape.rows, std::vector<std::byte>(shape.rows));
    EXPECT_EQ(receiver_.expect<FetchDone>().bytes, source.row_bytes() * shape.rows);
    sender_.expect<OfferDone>();
    EXPECT_TRUE(to.holds(number, 0, shape.rows));
  }
  EXPECT_EQ(sender_->stats().links, 1);  // One link for all transfers.
  EXPECT_EQ(sender_->stats().bytes_sent, receiver_->stats().bytes_received);
}

TEST_P(KvEndpointMoves, RowsAsTheyBecomeReadyAndNoOthers) {
  constexpr uint32_t kRows = 500;
  TestRegion source = rows({.rows = kRows});
  TestRegion to = target({.rows = kRows});
  sender_->offer(transfer_id(1), source.region(), in(kDeadline));
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), kRows, in(kDeadline));
  for (uint32_t ready = 0; ready < 300; ready += 50) {
    source.fill(5, ready, 50);
    sender_->rows_ready(transfer_id(1), ready + 50);
    while (sender_->stats().bytes_sent < (ready + 50) * source.row_bytes()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  source.fill(6, 300, kRows - 300);  // These rows are never part of the transfer.
  sender_->commit(transfer_id(1), 300, {});
  EXPECT_EQ(receiver_.expect<FetchDone>().rows, 300);
  EXPECT_TRUE(to.holds(5, 0, 300));
  EXPECT_FALSE(to.holds(6, 300, 1));
}

TEST_P(KvEndpointMoves, ManyAtOnce) {
  constexpr uint64_t kTransfers = 64;
  constexpr uint32_t kRows = 300;
  std::vector<TestRegion> sources, targets;
  for (uint64_t number = 0; number < kTransfers; ++number) {
    sources.push_back(rows({.rows = kRows}));
    targets.push_back(target({.rows = kRows}));
    sources.back().fill(number, 0, kRows);
  }
  for (uint64_t number = 0; number < kTransfers; ++number) {
    receiver_->fetch(transfer_id(number), sender_->address(), targets[number].region(), kRows,
                     in(kDeadline));
    sender_->offer(transfer_id(kTransfers - 1 - number), sources[kTransfers - 1 - number].region(),
                   in(kDeadline));
  }
  for (uint32_t ready = 100; ready <= kRows; ready += 100) {
    for (uint64_t number = 0; number < kTransfers; ++number) {
      sender_->rows_ready(transfer_id(number), ready);
    }
  }
  for (uint64_t number = 0; number < kTransfers; ++number) {
    sender_->commit(transfer_id(number), kRows, std::vector<std::byte>(number));
  }
  for (uint64_t number = 0; number < kTransfers; ++number) {
    const auto done = receiver_.expect<FetchDone>();
    EXPECT_EQ(done.tail.size(), done.id.low);
    EXPECT_TRUE(targets[done.id.low].holds(done.id.low, 0, kRows));
    sender_.expect<OfferDone>();
  }
}

TEST_P(KvEndpointMoves, ThousandTransfersLeakNothing) {
  TestRegion source = rows({});
  TestRegion to = target({});
  const auto transfer = [&](uint64_t number) {
    receiver_->fetch(transfer_id(number), sender_->address(), to.region(), 64, in(kDeadline));
    sender_->offer(transfer_id(number), source.region(), in(kDeadline));
    if (number % 4 == 3) {
      sender_->withdraw(transfer_id(number), {ErrorCode::kCancelled, "test"});
      receiver_.expect<FetchFailed>();
      sender_.expect<OfferFailed>();
    } else {
      sender_->commit(transfer_id(number), 64, {});
      receiver_.expect<FetchDone>();
      sender_.expect<OfferDone>();
    }
  };
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder),
                         std::filesystem::directory_iterator());
  };
  transfer(0);
  const auto fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (uint64_t number = 1; number <= 1000; ++number) {
    transfer(number);
  }
  EXPECT_EQ(entries("/proc/self/fd"), fds);
  EXPECT_LE(entries("/proc/self/task"), threads);  // Those of an earlier test may still be ending.
  EXPECT_EQ(sender_->stats().offers_alive, 0);
  EXPECT_EQ(receiver_->stats().fetches_alive, 0);
}

TEST_P(KvEndpointMoves, CancelWhileTheSenderHasNoRows) {
  TestRegion to = target({});
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(kDeadline));
  EXPECT_FALSE(receiver_.next(milliseconds(50)));
  receiver_->cancel(transfer_id(1));
  const auto failed = receiver_.expect<FetchFailed>();
  EXPECT_EQ(failed.error.code, ErrorCode::kCancelled);
  EXPECT_EQ(failed.region_safe, !peer_writes());
  if (peer_writes()) {
    EXPECT_EQ(receiver_.expect<FetchReleased>().id, transfer_id(1));
  }
  EXPECT_EQ(receiver_->stats().fetches_alive, 0);
}

// Regression: a client gave up and asked again. The answer to the CANCEL was taken for the end of
// the second fetch, whose grant stayed with the sender.
TEST_P(KvEndpointMoves, TransferThatIsFetchedAgainAfterACancelIsServed) {
  TestRegion source = rows({});
  TestRegion to = target({}), other = target({});
  source.fill(1, 0, 64);
  receiver_->fetch(transfer_id(1), sender_->address(), other.region(), 64, in(kDeadline));
  ASSERT_TRUE(sender_.becomes_awaited(transfer_id(1), true));  // The link is open.
  for (uint64_t number = 10; number < 30; ++number) {
    receiver_->fetch(transfer_id(number), sender_->address(), to.region(), 64, in(kDeadline));
    receiver_->cancel(transfer_id(number));
    const auto again = [&] {
      receiver_->fetch(transfer_id(number), sender_->address(), to.region(), 64, in(kDeadline));
    };
    if (!peer_writes()) {
      again();  // Before CANCELLED can arrive.
    }
    EXPECT_EQ(receiver_.expect<FetchFailed>().error.code, ErrorCode::kCancelled);
    if (peer_writes()) {
      receiver_.expect<FetchReleased>();
      again();
    }
    std::this_thread::sleep_for(
        milliseconds(10));  // By now the first grant is gone and the second has arrived.
    ASSERT_TRUE(sender_.becomes_awaited(transfer_id(number), true));
    sender_->offer(transfer_id(number), source.region(), in(kDeadline));
    sender_->commit(transfer_id(number), 64, {});
    EXPECT_EQ(receiver_.expect<FetchDone>().id, transfer_id(number));
    EXPECT_EQ(sender_.expect<OfferDone>().id, transfer_id(number));
    EXPECT_TRUE(to.holds(1, 0, 64));
  }
}

TEST_P(KvEndpointMoves, CancelWhileRowsMove) {
  constexpr TestRegion::Shape kBig{.windows = 8, .rows = 4096, .row_bytes = 1024};
  TestRegion source = rows(kBig);
  TestRegion to = target(kBig);
  sender_->offer(transfer_id(1), source.region(), in(kDeadline));
  sender_->rows_ready(transfer_id(1), 4096);
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 4096, in(kDeadline));
  while (sender_->stats().bytes_sent == 0) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  receiver_->cancel(transfer_id(1));
  EXPECT_EQ(sender_.expect<OfferFailed>().error.code, ErrorCode::kCancelled);
  const auto failed = receiver_.expect<FetchFailed>();
  EXPECT_TRUE(failed.region_safe == !peer_writes() || GetParam().writes_late());
  await_safe(receiver_, failed);
  // The link still works, and the target has no writer.
  to.clear();
  TestRegion small = rows({});
  TestRegion small_to = target({});
  small.fill(9, 0, 64);
  sender_->offer(transfer_id(2), small.region(), in(kDeadline));
  sender_->commit(transfer_id(2), 64, {});
  receiver_->fetch(transfer_id(2), sender_->address(), small_to.region(), 64, in(kDeadline));
  receiver_.expect<FetchDone>();
  EXPECT_TRUE(small_to.holds(9, 0, 64));
  EXPECT_TRUE(to.is_clear());
  EXPECT_EQ(sender_->stats().links, 1);
}

TEST_P(KvEndpointMoves, WithdrawWhileRowsMove) {
  constexpr TestRegion::Shape kBig{.windows = 8, .rows = 4096, .row_bytes = 1024};
  TestRegion source = rows(kBig);
  TestRegion to = target(kBig);
  sender_->offer(transfer_id(1), source.region(), in(kDeadline));
  sender_->rows_ready(transfer_id(1), 4096);
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 4096, in(kDeadline));
  while (sender_->stats().bytes_sent == 0) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  sender_->withdraw(transfer_id(1), {ErrorCode::kOverloaded, "no room"});
  EXPECT_EQ(sender_.expect<OfferFailed>().error.message, "no room");
  const auto failed = receiver_.expect<FetchFailed>();
  EXPECT_EQ(failed.error, (Error{ErrorCode::kOverloaded, "no room"}));
  EXPECT_TRUE(failed.region_safe || GetParam().writes_late());
  await_safe(receiver_, failed);
}

TEST_P(KvEndpointMoves, LeaseEndsWhenNobodyFetchesAndLateFetchesAreToldAtOnce) {
  TestRegion source = rows({});
  TestRegion to = target({});
  sender_->offer(transfer_id(1), source.region(), in(milliseconds(30)));
  EXPECT_EQ(sender_.expect<OfferFailed>().error.code, ErrorCode::kTimeout);
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver_.expect<FetchFailed>().error.code, ErrorCode::kTimeout);
}

TEST_P(KvEndpointMoves, FetchFailsAtItsDeadline) {
  TestRegion to = target({});
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(milliseconds(50)));
  EXPECT_EQ(receiver_.expect<FetchFailed>().error.code, ErrorCode::kTimeout);
}

TEST_P(KvEndpointMoves, FingerprintMismatchFailsAtOnceNamingTheField) {
  TestEndpoint other({.engine_id = "other",
                      .transport = GetParam().transport,
                      .tcp = GetParam().tcp,
                      .fingerprint = {{"model_digest", "abc"}, {"kv_type", "q8_0"}},
                      .device = GetParam().sender_device()});
  TestRegion to = target({});
  receiver_->fetch(transfer_id(1), other->address(), to.region(), 64, in(kDeadline));
  const auto failed = receiver_.expect<FetchFailed>(seconds(3));
  EXPECT_EQ(failed.error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(failed.error.message,
            "KV fingerprint differs in kv_type: sender 'q8_0', receiver 'f16'");
  EXPECT_TRUE(failed.region_safe);
}

TEST_P(KvEndpointMoves, WrongTokenIsRefused) {
  for (const std::string token : {"guess", ""}) {
    if (token.empty() && GetParam().tcp.encrypt == Encrypt::kAlways) {
      continue;  // Such an endpoint does not start.
    }
    TestEndpoint other({.engine_id = "other",
                        .transport = GetParam().transport,
                        .tcp = GetParam().tcp,
                        .token = token,
                        .device = GetParam().sender_device()});
    TestRegion to = target({});
    receiver_->fetch(transfer_id(1), other->address(), to.region(), 64, in(kDeadline));
    EXPECT_EQ(receiver_.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kUnsupported);
  }
}

TEST_P(KvEndpointMoves, RestartedEngineIsNotMistakenForItsPredecessor) {
  TestRegion to = target({});
  EndpointAddress stale = sender_->address();
  stale.engine_id = "prefill of yesterday";
  receiver_->fetch(transfer_id(1), stale, to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver_.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kUnavailable);
}

TEST_P(KvEndpointMoves, RegionsOfAnotherShapeAreRefused) {
  TestRegion source = rows({.windows = 4});
  TestRegion to = target({.windows = 5});
  sender_->offer(transfer_id(1), source.region(), in(kDeadline));
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver_.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kInvalidArgument);
  TestRegion fitting = target({.windows = 4});
  receiver_->fetch(transfer_id(1), sender_->address(), fitting.region(), 64, in(kDeadline));
  sender_->commit(transfer_id(1), 64, {});
  receiver_.expect<FetchDone>();  // The offer survived the refusal.
}

TEST_P(KvEndpointMoves, SecondReceiverIsRefused) {
  TestEndpoint second({.engine_id = "decode-2",
                       .transport = GetParam().transport,
                       .tcp = GetParam().tcp,
                       .device = GetParam().receiver_device()});
  TestRegion source = rows({});
  TestRegion to = target({}), to_second = target({});
  source.fill(1, 0, 64);
  sender_->offer(transfer_id(1), source.region(), in(kDeadline));
  receiver_->fetch(transfer_id(1), sender_->address(), to.region(), 64, in(kDeadline));
  EXPECT_FALSE(receiver_.next(milliseconds(100)));
  second->fetch(transfer_id(1), sender_->address(), to_second.region(), 64, in(kDeadline));
  EXPECT_EQ(second.expect<FetchFailed>().error.code, ErrorCode::kInvalidArgument);
  sender_->commit(transfer_id(1), 64, {});
  receiver_.expect<FetchDone>();
  EXPECT_TRUE(to.holds(1, 0, 64));
}

TEST_P(KvEndpointMoves, EndpointThatEndsFailsItsPeers) {
  TestRegion source = rows({});
  TestRegion to = target({});
  auto ending =
      std::make_unique<TestEndpoint>(TestEndpoint::Options{.engine_id = "ending",
                                                           .transport = GetParam().transport,
                                                           .tcp = GetParam().tcp,
                                                           .device = GetParam().sender_device()});
  (*ending)->offer(transfer_id(1), source.region(), in(kDeadline));
  receiver_->fetch(transfer_id(1), (*ending)->address(), to.region(), 64, in(kDeadline));
  EXPECT_FALSE(receiver_.next(milliseconds(100)));
  ending.reset();
  const auto failed = receiver_.expect<FetchFailed>(seconds(3));
  EXPECT_EQ(failed.error.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(failed.region_safe);
}

INSTANTIATE_TEST_SUITE_P(Transports, KvEndpointMoves,
                         testing::Values(kShmWay, kTcpWay, kTlsWay, kTlsStreamsWay, kNcclWay,
                                         kNcclTlsWay, kCudaIpcWay, kTcpFromGpuWay, kTcpToGpuWay,
                                         kShmFromGpuWay, kNcclGpusWay, kNcclFromGpuWay,
                                         kNcclToGpuWay),
                         [](const auto& param) { return param.param.name; });

// The shm transport, except that transfer 1 waits until another transfer has moved.
class PoliteTransport final : public Transport {
 public:
  explicit PoliteTransport(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)) {}

  TransportCapabilities capabilities() const override { return transport_->capabilities(); }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, Fd shared) override {
    PDJOB_TRY(std::unique_ptr<RowSender> rows, transport_->open_sender(grant, std::move(shared)));
    return std::unique_ptr<RowSender>(
        std::make_unique<PoliteSender>(*this, grant, std::move(rows)));
  }
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override {
    return transport_->open_receiver(grant, target);
  }

 private:
  class PoliteSender final : public RowSender {
   public:
    PoliteSender(PoliteTransport& transport, const Grant& grant, std::unique_ptr<RowSender> rows)
        : transport_(transport), waits_(grant.id == transfer_id(1)), rows_(std::move(rows)) {}
    void start(const Region& source, RowRange range) override { rows_->start(source, range); }
    Result<Progress> advance(size_t bytes_max) override {
      if (waits_ && !transport_.other_moved_) {
        return Progress::kOthersFirst;
      }
      transport_.other_moved_ = true;
      return rows_->advance(bytes_max);
    }
    uint64_t digest() const override { return rows_->digest(); }

   private:
    PoliteTransport& transport_;
    const bool waits_;
    std::unique_ptr<RowSender> rows_;
  };

  std::unique_ptr<Transport> transport_;
  bool other_moved_ = false;
};

// Regression: a long range held up all other transfers until its end.
TEST(KvEndpoint, RangesOfSeveralTransfersTakeTurns) {
  TestEndpoint receiver({.engine_id = "decode"});
  TestEndpoint sender(
      {.engine_id = "prefill",
       .open_transport = [](TransportKind kind, LinkStream& stream, TransportSide side,
                            const TransportDevices& devices) -> std::unique_ptr<Transport> {
         return std::make_unique<PoliteTransport>(open_transport(kind, stream, side, devices));
       }});
  TestRegion source({});
  source.fill(7, 0, 64);
  std::vector<TestRegion> targets;
  for (uint64_t id : {1, 2}) {
    targets.emplace_back(TestRegion::Shape{}, TestRegion::Memory::kShared);
    sender->offer(transfer_id(id), source.region(), in(kDeadline));
    sender->commit(transfer_id(id), 64, {});
    receiver->fetch(transfer_id(id), sender->address(), targets.back().region(), 64, in(kDeadline));
  }
  EXPECT_EQ(receiver.expect<FetchDone>().id, transfer_id(2));
  EXPECT_EQ(receiver.expect<FetchDone>().id, transfer_id(1));
  EXPECT_TRUE(targets[0].holds(7, 0, 64) && targets[1].holds(7, 0, 64));
}

TEST(KvEndpoint, AutoTakesSharedMemoryWhereItCan) {
  TestEndpoint sender({.engine_id = "prefill"}), receiver({.engine_id = "decode"});
  TestRegion source({});
  TestRegion shared({}, TestRegion::Memory::kShared), own({});
  EndpointAddress elsewhere = sender->address();
  elsewhere.host_id = "another machine";
  const auto transport_of = [&](uint64_t number, const EndpointAddress& address,
                                const TestRegion& to) {
    sender->offer(transfer_id(number), source.region(), in(kDeadline));
    sender->commit(transfer_id(number), 64, {});
    receiver->fetch(transfer_id(number), address, to.region(), 64, in(kDeadline));
    sender.expect<OfferDone>();
    return receiver.expect<FetchDone>();
  };
  EXPECT_EQ(transport_of(1, sender->address(), shared).transport, "shm");
  EXPECT_EQ(transport_of(2, sender->address(), own).transport, "tcp");
  const FetchDone remote = transport_of(3, elsewhere, shared);
  EXPECT_EQ(remote.transport, "tcp");
  EXPECT_EQ(remote.visible, Duration(0));  // The clocks of two machines are not comparable.
}

TEST(KvEndpoint, ForcedSharedMemoryFailsNamingWhatIsMissing) {
  TestEndpoint sender({.engine_id = "prefill"}),
      receiver({.engine_id = "decode", .transport = TransportKind::kShm});
  TestRegion own({});
  receiver->fetch(transfer_id(1), sender->address(), own.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>().error,
            (Error{ErrorCode::kUnsupported,
                   "kvtransfer.transport is shm, but the target is not shared memory"}));
}

TEST(KvEndpoint, UnsealedMemoryIsRefusedByTheSender) {
  TestEndpoint sender({.engine_id = "prefill"}), receiver({.engine_id = "decode"});
  TestRegion to({}, TestRegion::Memory::kUnsealed);
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  const auto failed = receiver.expect<FetchFailed>();
  EXPECT_EQ(failed.error.code, ErrorCode::kUnsupported);
  EXPECT_TRUE(failed.region_safe);
}

// Regression: a grant was sent without its memory, and the sender took the memory of the next
// grant.
TEST(KvEndpoint, FetchThatCannotHandOverItsMemoryFails) {
  TestEndpoint sender({.engine_id = "prefill"}), receiver({.engine_id = "decode"});
  TestRegion source({}), first({}, TestRegion::Memory::kShared),
      to({}, TestRegion::Memory::kShared);
  source.fill(1, 0, 64);
  receiver->fetch(transfer_id(1), sender->address(), first.region(), 64, in(kDeadline));
  ASSERT_TRUE(sender.becomes_awaited(transfer_id(1), true));  // The link is open.
  // Simulates a process that has run out of descriptors. Really using them up would take the
  // sanitizers' descriptors too.
  Region lost = to.region();
  lost.shared_fd = std::numeric_limits<int>::max();
  receiver->fetch(transfer_id(2), sender->address(), lost, 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>().error.code, ErrorCode::kOverloaded);
  receiver.expect<FetchReleased>();
  receiver->fetch(transfer_id(3), sender->address(), to.region(), 64, in(kDeadline));
  sender->offer(transfer_id(3), source.region(), in(kDeadline));
  sender->commit(transfer_id(3), 64, {});
  EXPECT_EQ(receiver.expect<FetchDone>().id, transfer_id(3));
  EXPECT_TRUE(to.holds(1, 0, 64));
}

// Returns an id with the same name and another proof, in the form of transfer_id().
TransferId impostor_of(TransferId id) { return {.high = id.high + 1, .low = id.low}; }

TEST(KvEndpoint, AFetchThatKnowsOnlyTheNameOfAnOfferGetsNothing) {
  TestEndpoint sender({.engine_id = "prefill"}), thief({.engine_id = "thief"}),
      receiver({.engine_id = "decode"});
  TestRegion source({}), stolen({}), to({});
  source.fill(1, 0, 64);
  const TransferId id = transfer_id(1);
  // Before the offer exists.
  thief->fetch(impostor_of(id), sender->address(), stolen.region(), 64, in(kDeadline));
  ASSERT_TRUE(sender.becomes_awaited(impostor_of(id), true));
  sender->offer(id, source.region(), in(kDeadline));
  EXPECT_EQ(thief.expect<FetchFailed>().error.code, ErrorCode::kUnavailable);
  // While the offer exists.
  thief->fetch(impostor_of(id), sender->address(), stolen.region(), 64, in(kDeadline));
  EXPECT_EQ(thief.expect<FetchFailed>().error.code, ErrorCode::kUnavailable);
  sender->commit(id, 64, {});
  receiver->fetch(id, sender->address(), to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchDone>().id, id);
  EXPECT_TRUE(to.holds(1, 0, 64));
  // After the offer has ended.
  thief->fetch(impostor_of(id), sender->address(), stolen.region(), 64, in(kDeadline));
  EXPECT_EQ(thief.expect<FetchFailed>().error.code, ErrorCode::kUnavailable);
  EXPECT_FALSE(stolen.holds(1, 0, 1));
}

TEST(KvEndpoint, NobodyThereFailsTheFetch) {
  TestEndpoint receiver({.engine_id = "decode"});
  TestRegion to({}, TestRegion::Memory::kShared);
  EndpointAddress nobody = receiver->address();
  nobody.engine_id = "nobody";
  nobody.unix_path = "@pdjob-kv-nobody";
  receiver->fetch(transfer_id(1), nobody, to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kUnavailable);
  nobody.host_id = "";
  nobody.port = 1;
  receiver->fetch(transfer_id(2), nobody, to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kUnavailable);
  nobody.host = "not a numeric address";
  receiver->fetch(transfer_id(3), nobody, to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kInvalidArgument);
}

TEST(KvEndpoint, UnusableRegionsAreRefused) {
  TestEndpoint endpoint({});
  TestRegion to({});
  endpoint->offer(transfer_id(1), Region{}, in(kDeadline));
  EXPECT_EQ(endpoint.expect<OfferFailed>().error.code, ErrorCode::kInvalidArgument);
  endpoint->fetch(transfer_id(1), endpoint->address(), to.region(), 65, in(kDeadline));
  EXPECT_EQ(endpoint.expect<FetchFailed>().error.code, ErrorCode::kInvalidArgument);
}

TEST(KvEndpoint, TwoTransfersOfOneIdDoNotDisturbTheFirst) {
  TestEndpoint sender({.engine_id = "prefill"}), receiver({.engine_id = "decode"});
  TestRegion source({}), to({}), other({});
  source.fill(1, 0, 64);
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  receiver->fetch(transfer_id(1), sender->address(), other.region(), 64, in(kDeadline));
  receiver.take_orders();  // Otherwise the first may be done before the second is looked at.
  sender->offer(transfer_id(1), source.region(), in(kDeadline));
  sender->offer(transfer_id(1), other.region(), in(kDeadline));
  sender->commit(transfer_id(1), 64, {});
  receiver.expect<FetchDone>();
  EXPECT_TRUE(to.holds(1, 0, 64));
  EXPECT_FALSE(receiver.next(milliseconds(20)));
}

TEST(KvEndpoint, AnOfferThatIsMadeAgainIsRememberedAsLongAsOthers) {
  TestEndpoint sender({.engine_id = "prefill"}), receiver({.engine_id = "decode"});
  TestRegion source({}), to({});
  const auto end = [&](uint64_t number, const char* why) {
    sender->offer(transfer_id(number), source.region(), in(kDeadline));
    sender->withdraw(transfer_id(number), {ErrorCode::kCancelled, why});
    EXPECT_EQ(sender.expect<OfferFailed>().error.message, why);
  };
  end(0, "once");
  for (uint64_t number = 1; number < limits::kTransfersMax; ++number) {
    end(number, "another");
  }
  end(0, "twice");
  receiver->fetch(transfer_id(0), sender->address(), to.region(), 64, in(seconds(2)));
  EXPECT_EQ(receiver.expect<FetchFailed>().error.message, "twice");
}

TEST(KvEndpoint, RunsWithoutATokenOnLoopback) {
  TestEndpoint sender({.engine_id = "prefill", .token = ""}),
      receiver({.engine_id = "decode", .token = ""});
  TestRegion source({}), to({});
  sender->offer(transfer_id(1), source.region(), in(kDeadline));
  sender->commit(transfer_id(1), 64, {});
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  receiver.expect<FetchDone>();
}

}  // namespace
}  // namespace pdjob::kvtransfer
