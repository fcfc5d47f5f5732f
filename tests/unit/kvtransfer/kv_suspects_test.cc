// Rows that arrive damaged. The link is opened anew and the pair is counted, and in the end
// suspected. Tested over each transport.
#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

#include "kvtransfer/kv_endpoint.h"
#include "tests/support/fault_transport.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);
constexpr uint64_t kDamaged = 1000;  // Transfers from this number on are damaged.

std::vector<PairStats> pairs_of(TestEndpoint& endpoint) {
  std::mutex mutex;
  std::condition_variable came;
  std::optional<std::vector<PairStats>> pairs;
  endpoint->report_pairs([&](std::vector<PairStats> reported) {
    const std::lock_guard lock(mutex);
    pairs = std::move(reported);
    came.notify_one();
  });
  std::unique_lock lock(mutex);
  came.wait(lock, [&] { return pairs.has_value(); });
  return *pairs;
}

class KvSuspects : public testing::TestWithParam<TransportKind> {
 protected:
  static TestEndpoint::Options options(const char* engine, Duration lease = kDeadline) {
    return {.engine_id = engine,
            .transport = GetParam(),
            .lease = lease,
            .connect_timeout = seconds(2),  // Sanitizers are slow on a busy machine.
            .open_transport = with_faults([](TransferId id) {
              return FaultPlan{.kind = id.low >= kDamaged ? FaultKind::kFlipBit : FaultKind::kNone,
                               .bit = 77};
            })};
  }
  TestRegion target() const {
    return TestRegion({}, GetParam() == TransportKind::kShm ? TestRegion::Memory::kShared
                                                            : TestRegion::Memory::kPrivate);
  }
  void start(TestEndpoint& sender, TestEndpoint& receiver, uint64_t number, const TestRegion& to) {
    source_.fill(7, 0, 64);
    sender->offer(transfer_id(number), source_.region(), in(kDeadline));
    sender->commit(transfer_id(number), 64, {});
    receiver->fetch(transfer_id(number), sender->address(), to.region(), 64, in(kDeadline));
  }
  void moves_well(TestEndpoint& sender, TestEndpoint& receiver, uint64_t number) {
    TestRegion to = target();
    start(sender, receiver, number, to);
    EXPECT_EQ(receiver.expect<FetchDone>().id, transfer_id(number));
    EXPECT_TRUE(to.holds(7, 0, 64));
    EXPECT_EQ(sender.expect<OfferDone>().id, transfer_id(number));
  }
  FetchFailed is_damaged(TestEndpoint& sender, TestEndpoint& receiver, uint64_t number) {
    TestRegion to = target();
    start(sender, receiver, number, to);
    auto failed = receiver.expect<FetchFailed>();
    EXPECT_EQ(failed.error.code, ErrorCode::kCorrupt) << failed.error.message;
    EXPECT_TRUE(failed.region_safe);
    EXPECT_EQ(sender.expect<OfferFailed>().id, transfer_id(number));
    return failed;
  }

  TestRegion source_{{}};
};

TEST_P(KvSuspects, DamagedRowsEndTheirLinkAndTheNextHasAHigherEpoch) {
  TestEndpoint sender(options("prefill")), receiver(options("decode"));
  moves_well(sender, receiver, 1);
  ASSERT_EQ(pairs_of(receiver).size(), 1U);
  EXPECT_EQ(pairs_of(receiver)[0].epoch, 1U);
  is_damaged(sender, receiver, kDamaged);
  EXPECT_TRUE(becomes_true([&] { return receiver->stats().links == 0; }));
  moves_well(sender, receiver, 2);
  for (TestEndpoint* endpoint : {&sender, &receiver}) {
    const std::vector<PairStats> pairs = pairs_of(*endpoint);
    ASSERT_EQ(pairs.size(), 1U);
    EXPECT_EQ(pairs[0].state, PairStats::State::kOpen);
    EXPECT_EQ(pairs[0].epoch, 2U);
    EXPECT_EQ(pairs[0].links_opened, 2U);
    EXPECT_EQ(pairs[0].transfers, 2U);
    EXPECT_EQ(pairs[0].bytes, uint64_t{2} * 64 * source_.row_bytes());
    EXPECT_GT(pairs[0].busy, Duration(0));
    EXPECT_EQ(pairs[0].peer, endpoint == &sender ? "decode" : "prefill");
    EXPECT_STREQ(to_string(pairs[0].transport), name_of(GetParam()));
  }
  EXPECT_EQ(pairs_of(receiver)[0].digest_errors(), 1U);
  EXPECT_EQ(pairs_of(sender)[0].digest_errors(), 0U) << "only the receiver can know";
}

TEST_P(KvSuspects, OnePairIsSuspectAfterTwoErrorsAndNoOther) {
  TestEndpoint sender(options("prefill")), other(options("other")), receiver(options("decode"));
  EXPECT_FALSE(is_damaged(sender, receiver, kDamaged).pair_suspect);
  EXPECT_FALSE(is_damaged(other, receiver, kDamaged + 1).pair_suspect);
  EXPECT_TRUE(is_damaged(sender, receiver, kDamaged + 2).pair_suspect);
  moves_well(other, receiver, 1);
  for (const PairStats& pair : pairs_of(receiver)) {
    EXPECT_EQ(pair.suspect, pair.peer == "prefill") << pair.peer;
  }
}

// Regression: queued requests used the link that ended too, and would have lost their KV.
TEST_P(KvSuspects, WaitsOutliveTheLinkThatTheyWereSaidOn) {
  constexpr Duration kLease = seconds(2);
  TestEndpoint sender(options("prefill", kLease)), receiver(options("decode", kLease));
  TestRegion kept({});
  kept.fill(9, 0, 64);
  sender->offer(transfer_id(1), kept.region(), in(kLease));
  sender->commit(transfer_id(1), 64, {});
  receiver->await(transfer_id(1), sender->address(), in(kDeadline));
  is_damaged(sender, receiver, kDamaged);
  EXPECT_FALSE(sender.next(2 * kLease)) << "the offer has ended";
  EXPECT_EQ(pairs_of(sender)[0].waits_alive, 1U);
  TestRegion to = target();
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  receiver.expect<FetchDone>();
  EXPECT_TRUE(to.holds(9, 0, 64));
}

INSTANTIATE_TEST_SUITE_P(Transports, KvSuspects,
                         testing::Values(TransportKind::kShm, TransportKind::kTcp,
                                         TransportKind::kNccl),
                         [](const auto& tested) { return name_of(tested.param); });

}  // namespace
}  // namespace pdjob::kvtransfer
