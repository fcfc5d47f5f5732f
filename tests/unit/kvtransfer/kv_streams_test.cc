// Several links (streams) between two endpoints: which link a transfer takes, and what is lost with
// a link.
#include <gtest/gtest.h>

#include "tests/unit/kvtransfer/kv_fixture.h"
#include "tests/unit/kvtransfer/relay.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);
constexpr TestRegion::Shape kShape{.windows = 4, .rows = 512, .row_bytes = 512};

class KvStreams : public testing::Test {
 protected:
  static TestEndpoint::Options options(const std::string& engine_id, uint32_t streams) {
    return {.engine_id = engine_id, .transport = TransportKind::kTcp, .tcp = {.streams = streams}};
  }
  KvStreams() { source_.fill(5, 0, kShape.rows); }

  void fetch(TestEndpoint& receiver, uint64_t number, uint32_t rows = kShape.rows) {
    receiver->fetch(transfer_id(number), relay_.address(), target_.region(), rows, in(kDeadline));
    // Once awaited, its link is open, and later transfers see the link as busy.
    ASSERT_TRUE(sender_.becomes_awaited(transfer_id(number), true));
  }
  bool serves(TestEndpoint& receiver, uint64_t number) {
    target_.clear();
    sender_->offer(transfer_id(number), source_.region(), in(kDeadline));
    sender_->commit(transfer_id(number), kShape.rows, {});
    const bool right =
        receiver.expect<FetchDone>().id == transfer_id(number) && target_.holds(5, 0, kShape.rows);
    sender_.expect<OfferDone>();
    return right;
  }

  TestRegion source_{kShape}, target_{kShape};  // The test serves one fetch at a time.
  // The sender's own number of streams does not matter.
  TestEndpoint sender_{options("prefill", 1)};
  Relay relay_{sender_->address()};
};

TEST_F(KvStreams, OneIsTheDefault) {
  TestEndpoint receiver({.engine_id = "decode", .transport = TransportKind::kTcp});
  for (const uint64_t number : {1, 2, 3}) {
    fetch(receiver, number);
  }
  EXPECT_EQ(relay_.connections(), 1U);
}

TEST_F(KvStreams, AnotherIsOpenedOnlyWhenAllAreBusyAndNotBeyondTheLast) {
  TestEndpoint receiver(options("decode", 3));
  for (const uint64_t number : {1, 2}) {
    fetch(receiver, number);
    EXPECT_TRUE(serves(receiver, number));
    EXPECT_EQ(relay_.connections(), 1U) << "one after the other needs one";
  }
  for (const uint64_t number : {3, 4, 5, 6, 7}) {
    fetch(receiver, number);
    EXPECT_EQ(relay_.connections(), std::min<uint64_t>(number - 2, 3));
  }
  EXPECT_EQ(sender_->stats().links, 3U);
}

TEST_F(KvStreams, ATransferGoesByTheLeastBusyOne) {
  TestEndpoint receiver(options("decode", 2));
  fetch(receiver, 1, kShape.rows);
  fetch(receiver, 2, 4);
  fetch(receiver, 3, kShape.rows);  // On the stream of the short one.
  const uint64_t first = relay_.carried(0), second = relay_.carried(1);
  EXPECT_TRUE(serves(receiver, 3));
  EXPECT_GT(relay_.carried(1) - second, kShape.rows * source_.row_bytes());
  EXPECT_LT(relay_.carried(0) - first, 1000U);
}

TEST_F(KvStreams, AStreamThatDiesTakesNoOtherWithIt) {
  TestEndpoint receiver(options("decode", 3));
  for (const uint64_t number : {1, 2, 3}) {
    fetch(receiver, number);
  }
  relay_.cut(1);
  const auto failed = receiver.expect<FetchFailed>();
  EXPECT_EQ(failed.id, transfer_id(2));
  EXPECT_EQ(failed.error.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(failed.region_safe);
  EXPECT_TRUE(becomes_true([&] { return sender_->stats().links == 2; }));
  EXPECT_TRUE(serves(receiver, 1));
  EXPECT_TRUE(serves(receiver, 3));
  // The next transfers open the stream again, under a higher epoch.
  for (const uint64_t number : {4, 5, 6}) {
    fetch(receiver, number);
  }
  EXPECT_EQ(relay_.connections(), 4U);
  for (const uint64_t number : {4, 5, 6}) {
    EXPECT_TRUE(serves(receiver, number));
  }
}

}  // namespace
}  // namespace pdjob::kvtransfer
