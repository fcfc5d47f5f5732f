// A receiver that has no free rows for a transfer keeps the sender's offer alive. Tested over each
// transport.
#include <thread>

#include <gtest/gtest.h>

#include "kvtransfer/kv_endpoint.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);
constexpr Duration kLease = seconds(1);
constexpr Duration kShortLease = milliseconds(300);  // Of an offer that is to end.

class KvWaits : public testing::TestWithParam<TransportKind> {
 protected:
  static TestEndpoint::Options options(const char* engine, Duration lease) {
    return {.engine_id = engine,
            .transport = GetParam(),
            .lease = lease,
            .connect_timeout = seconds(1)};
  }
  TestRegion target() const {
    return TestRegion({}, GetParam() == TransportKind::kShm ? TestRegion::Memory::kShared
                                                            : TestRegion::Memory::kPrivate);
  }
  void offer(TestEndpoint& sender, uint64_t number, Duration lease) {
    source_.fill(7, 0, 64);
    sender->offer(transfer_id(number), source_.region(), in(lease));
    sender->commit(transfer_id(number), 64, {});
  }
  // When it returns, all earlier messages of the receiver have arrived too.
  void transfer(TestEndpoint& sender, TestEndpoint& receiver, uint64_t number) {
    TestRegion to = target();
    offer(sender, number, kDeadline);
    receiver->fetch(transfer_id(number), sender->address(), to.region(), 64, in(kDeadline));
    EXPECT_EQ(receiver.expect<FetchDone>().id, transfer_id(number));
    EXPECT_EQ(sender.expect<OfferDone>().id, transfer_id(number));
    EXPECT_TRUE(to.holds(7, 0, 64));
  }

  TestRegion source_{{}};
};

TEST_P(KvWaits, KeepAnOfferBeyondItsLeaseUntilItIsFetched) {
  TestEndpoint sender(options("prefill", kLease)), receiver(options("decode", kLease));
  TestRegion to = target();
  offer(sender, 1, kLease);
  receiver->await(transfer_id(1), sender->address(), in(kDeadline));
  EXPECT_FALSE(sender.next(2 * kLease));
  EXPECT_EQ(sender->stats().offers_alive, 1U);
  EXPECT_EQ(receiver->stats().waits_alive, 1U);
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  receiver.expect<FetchDone>();
  EXPECT_TRUE(to.holds(7, 0, 64));
  sender.expect<OfferDone>();
  EXPECT_EQ(receiver->stats().waits_alive, 0U);
}

TEST_P(KvWaits, KeepAnOfferThatComesLater) {
  TestEndpoint sender(options("prefill", kLease)), receiver(options("decode", kLease));
  receiver->await(transfer_id(1), sender->address(), in(kDeadline));
  transfer(sender, receiver, 2);
  EXPECT_TRUE(sender.becomes_awaited(transfer_id(1), false)) << "no rows are reserved for it";
  offer(sender, 1, kLease);
  EXPECT_FALSE(sender.next(2 * kLease));
  EXPECT_EQ(sender->stats().offers_alive, 1U);
}

TEST_P(KvWaits, FreeTheOfferAtOnceWhenTheRequestHasEnded) {
  TestEndpoint sender(options("prefill", kDeadline)), receiver(options("decode", kDeadline));
  offer(sender, 1, kDeadline);
  receiver->await(transfer_id(1), sender->address(), in(kDeadline));
  transfer(sender, receiver, 2);
  receiver->cancel(transfer_id(1));
  const auto failed = sender.expect<OfferFailed>(seconds(5));
  EXPECT_EQ(failed.id, transfer_id(1));
  EXPECT_EQ(failed.error.code, ErrorCode::kCancelled);
  EXPECT_FALSE(receiver.next(milliseconds(50))) << "nobody hears of a wait";
}

TEST_P(KvWaits, LeaveNothingBehindWhenTheRequestEndsBeforeItsOffer) {
  TestEndpoint sender(options("prefill", kShortLease)), receiver(options("decode", kShortLease));
  receiver->await(transfer_id(1), sender->address(), in(kDeadline));
  transfer(sender, receiver, 2);
  receiver->cancel(transfer_id(1));
  transfer(sender, receiver, 3);
  offer(sender, 1, kShortLease);
  EXPECT_EQ(sender.expect<OfferFailed>(seconds(5)).error.code, ErrorCode::kTimeout);
}

TEST_P(KvWaits, EndWithTheirDeadlineThoughTheLinkRenews) {
  TestEndpoint sender(options("prefill", kShortLease)), receiver(options("decode", kShortLease));
  offer(sender, 1, kShortLease);
  receiver->await(transfer_id(1), sender->address(), in(2 * kShortLease));
  EXPECT_EQ(sender.expect<OfferFailed>(seconds(5)).error.code, ErrorCode::kTimeout);
  EXPECT_EQ(sender->stats().links, 1U);
}

TEST_P(KvWaits, EndSoonAfterTheirReceiver) {
  TestEndpoint sender(options("prefill", kDeadline));
  offer(sender, 1, kShortLease);
  {
    TestEndpoint receiver(options("decode", kShortLease));
    receiver->await(transfer_id(1), sender->address(), in(kDeadline));
    transfer(sender, receiver, 2);
  }
  EXPECT_EQ(sender.expect<OfferFailed>(seconds(5)).error.code, ErrorCode::kTimeout);
}

TEST_P(KvWaits, OfferThatHasEndedIsToldToTheFetch) {
  TestEndpoint sender(options("prefill", kShortLease)), receiver(options("decode", kShortLease));
  TestRegion to = target();
  offer(sender, 1, milliseconds(1));
  sender.expect<OfferFailed>();
  receiver->await(transfer_id(1), sender->address(), in(kDeadline));
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>().error.code, ErrorCode::kTimeout);
}

INSTANTIATE_TEST_SUITE_P(Transports, KvWaits,
                         testing::Values(TransportKind::kShm, TransportKind::kTcp,
                                         TransportKind::kNccl),
                         [](const auto& tested) { return name_of(tested.param); });

// The peer's address has no listener. Regression: each attempt was followed by the next at once.
TEST(KvWaitsAlone, LookForTheirPeerNowAndThenOnly) {
  TestEndpoint receiver({.engine_id = "decode", .connect_timeout = milliseconds(400)});
  EndpointAddress nobody = receiver->address();
  nobody.engine_id = "nobody";
  nobody.unix_path = "@pdjob-kv-nobody";
  receiver->await(transfer_id(1), nobody, in(milliseconds(500)));
  EXPECT_TRUE(becomes_true([&] { return receiver->stats().waits_alive == 0; }));
  EXPECT_FALSE(receiver.next(milliseconds(10)));
}

}  // namespace
}  // namespace pdjob::kvtransfer
