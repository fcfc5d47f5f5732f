// What peers say of blocks, and offers of rows that nobody holds still.
#include <memory>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);

class KvBlocks : public testing::TestWithParam<Way> {
 protected:
  static TestRegion target() { return TestRegion({}, GetParam().target()); }
  BlockNews news(BlockNews::Kind kind) {
    return {.kind = kind,
            .holder = kind == BlockNews::Kind::kHeld ? worker_->address() : EndpointAddress{},
            .rows = 64,
            .row_bytes = {48, 64},
            .before = {.high = 5, .low = 6},
            .blocks = {{.name = {.high = 1, .low = 2}, .transfer = transfer_id(1)}}};
  }

  // A store has no model, and so no fingerprint.
  TestEndpoint store_{{.engine_id = "store",
                       .transport = GetParam().transport,
                       .tcp = GetParam().tcp,
                       .fingerprint = {}}};
  TestEndpoint worker_{
      {.engine_id = "worker", .transport = GetParam().transport, .tcp = GetParam().tcp}};
};

TEST_P(KvBlocks, APeerHearsOfBlocksAndWhoSaysIt) {
  for (const auto kind : {BlockNews::Kind::kWanted, BlockNews::Kind::kHeld}) {
    worker_->tell(store_->address(), news(kind));
    const auto told = store_.expect<BlocksTold>();
    EXPECT_EQ(told.peer, "worker");
    EXPECT_EQ(told.news, news(kind));
  }
}

TEST_P(KvBlocks, APeerCannotSpeakForAnother) {
  BlockNews lie = news(BlockNews::Kind::kHeld);
  lie.holder.engine_id = "another";
  TestRegion to = target();
  // First: one that comes after the end of the link would wait on another one.
  worker_->fetch(transfer_id(1), store_->address(), to.region(), 64, in(kDeadline));
  worker_->tell(store_->address(), lie);
  worker_.expect<FetchFailed>();  // Its link was closed.
  EXPECT_FALSE(store_.next(std::chrono::milliseconds(50)));
}

TEST_P(KvBlocks, AStoreGivesToAndTakesFromWorkersOfAnyModel) {
  TestRegion source({}, GetParam().source());
  TestRegion to = target();
  source.fill(7, 0, 64);
  worker_->offer(transfer_id(1), source.region(), in(kDeadline));
  worker_->commit(transfer_id(1), 64, {});
  store_->fetch(transfer_id(1), worker_->address(), to.region(), 64, in(kDeadline));
  const auto done = store_.expect<FetchDone>();
  worker_.expect<OfferDone>();
  EXPECT_NE(done.digest, 0U);

  TestRegion again = target();
  store_->offer(transfer_id(2), to.region(), in(kDeadline), {.digest = done.digest});
  store_->commit(transfer_id(2), 64, {});
  worker_->fetch(transfer_id(2), store_->address(), again.region(), 64, in(kDeadline));
  EXPECT_EQ(worker_.expect<FetchDone>().digest, done.digest);
  EXPECT_TRUE(again.holds(7, 0, 64));
}

TEST_P(KvBlocks, RowsThatAreNotWhatTheyWereAreNotCommitted) {
  TestRegion source({}, GetParam().source());
  source.fill(7, 0, 64);
  store_->offer(transfer_id(1), source.region(), in(kDeadline), {.digest = 12345});
  store_->commit(transfer_id(1), 64, {});
  TestRegion to = target();
  worker_->fetch(transfer_id(1), store_->address(), to.region(), 64, in(kDeadline));
  const auto failed = worker_.expect<FetchFailed>();
  await_safe(worker_, failed);
  const auto offer = store_.expect<OfferFailed>();
  EXPECT_EQ(offer.error.code, ErrorCode::kCorrupt);
  EXPECT_TRUE(offer.rows_damaged);
}

TEST_P(KvBlocks, RowsThatChangedWhileTheyWereReadAreNotCommitted) {
  TestRegion source({}, GetParam().source());
  source.fill(7, 0, 64);
  const auto changed = std::make_shared<std::atomic<bool>>(false);
  store_->offer(transfer_id(1), source.region(), in(kDeadline), {.changed = changed});
  TestRegion to = target();
  worker_->fetch(transfer_id(1), store_->address(), to.region(), 64, in(kDeadline));
  changed->store(true);
  store_->commit(transfer_id(1), 64, {});
  const auto failed = worker_.expect<FetchFailed>();
  await_safe(worker_, failed);
  const auto offer = store_.expect<OfferFailed>();
  EXPECT_EQ(offer.error.code, ErrorCode::kUnavailable);
  EXPECT_FALSE(offer.rows_damaged);
}

TEST_P(KvBlocks, AReceiverThatWaitsIsRefusedAtOnceAndSoIsALaterOne) {
  const Error gone{ErrorCode::kNotFound, "the store does not have this block"};
  TestRegion to = target();
  worker_->fetch(transfer_id(1), store_->address(), to.region(), 64, in(kDeadline));
  EXPECT_TRUE(store_.becomes_awaited(transfer_id(1), true));
  store_->refuse(transfer_id(1), gone);
  EXPECT_EQ(worker_.expect<FetchFailed>().error, gone);
  EXPECT_TRUE(store_.becomes_awaited(transfer_id(1), false));

  store_->refuse(transfer_id(2), gone);
  store_.take_orders();
  worker_->fetch(transfer_id(2), store_->address(), to.region(), 64, in(kDeadline));
  const auto failed = worker_.expect<FetchFailed>();
  EXPECT_EQ(failed.error, gone);
  EXPECT_TRUE(failed.region_safe);
}

INSTANTIATE_TEST_SUITE_P(Ways, KvBlocks, testing::Values(kShmWay, kTcpWay, kTlsWay),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace pdjob::kvtransfer
