#include "kvtransfer/session/pair_table.h"

#include <gtest/gtest.h>

#include "common/limits.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::seconds;

constexpr Instant kStart{};
constexpr LinkId kLink{1}, kNext{2};
const PairTable::Key kKey{"p", TransportKind::kTcp, Direction::kReceives};

struct PairTableTest : testing::Test {
  std::vector<PairStats> rows(Instant now = kStart) {
    std::vector<std::vector<LinkId>> links;
    return table.rows(now, links);
  }
  void open(LinkId link, uint64_t epoch, Instant now = kStart) {
    table.link_made(link, kKey, epoch, now);
    table.link_opened(link);
  }

  PairTable table;
};

TEST_F(PairTableTest, CountsOnOverTheLinksOfAPair) {
  open(kLink, 1);
  table.done(kLink, 100, seconds(2));
  table.failed(kLink, FailureCause::kStalled, kStart);
  table.stalled(kLink, StallCause::kPush);
  table.link_lost(kLink, kStart);
  EXPECT_EQ(rows().at(0).state, PairStats::State::kLost);
  table.done(kLink, 5, seconds(5));  // Ignored: this link is lost.
  open(kNext, 2);
  table.done(kNext, 50, seconds(1));
  ASSERT_EQ(rows().size(), 1U);
  const PairStats pair = rows()[0];
  EXPECT_EQ(pair.state, PairStats::State::kOpen);
  EXPECT_EQ(pair.epoch, 2U);
  EXPECT_EQ(pair.links_opened, 2U);
  EXPECT_EQ(pair.transfers, 2U);
  EXPECT_EQ(pair.bytes, 150U);
  EXPECT_EQ(pair.busy, seconds(3));
  EXPECT_EQ(pair.failures[static_cast<size_t>(FailureCause::kStalled)], 1U);
  EXPECT_EQ(pair.stalls[static_cast<size_t>(StallCause::kPush)], 1U);
}

TEST_F(PairTableTest, APairOfSeveralStreamsIsThereWhileOneOfThemIs) {
  open(kLink, 1);
  table.link_made(kNext, kKey, 2, kStart);
  table.link_lost(kLink, kStart);
  EXPECT_EQ(rows(kStart + seconds(100)).at(0).state, PairStats::State::kOpening);
  table.link_opened(kNext);
  table.done(kNext, 50, seconds(1));
  EXPECT_EQ(rows(kStart + seconds(100)).at(0).state, PairStats::State::kOpen);
  EXPECT_EQ(rows(kStart + seconds(100)).at(0).bytes, 50U);
}

// Otherwise each restart of a peer would leave its series behind forever.
TEST_F(PairTableTest, ForgetsADeadIncarnationAMinuteLater) {
  open(kLink, 1);
  table.link_lost(kLink, kStart + seconds(10));
  EXPECT_EQ(rows(kStart + seconds(70)).size(), 1U);
  EXPECT_EQ(rows(kStart + seconds(71)).size(), 0U);
}

TEST_F(PairTableTest, KeepsThePairWhoseNextLinkIsThere) {
  open(kLink, 1);
  open(kNext, 2);
  table.link_lost(kLink, kStart);
  EXPECT_EQ(rows(kStart + seconds(1000)).at(0).state, PairStats::State::kOpen);
}

// A link that was given up ends long after its pair's row.
TEST_F(PairTableTest, LinkMayOutliveItsRow) {
  open(kLink, 1);
  table.link_lost(kLink, kStart);  // Gives the link up.
  EXPECT_TRUE(rows(kStart + seconds(1000)).empty());
  EXPECT_FALSE(table.failed(kLink, FailureCause::kLink, kStart));
  table.link_lost(kLink, kStart + seconds(1000));
}

TEST_F(PairTableTest, SuspectsAPairAfterTwoDigestErrorsWithinAMinute) {
  open(kLink, 1);
  EXPECT_FALSE(table.failed(kLink, FailureCause::kDigest, kStart));
  EXPECT_FALSE(table.failed(kLink, FailureCause::kTimeout, kStart));
  EXPECT_FALSE(table.failed(kLink, FailureCause::kDigest, kStart + seconds(61)));
  EXPECT_FALSE(rows(kStart + seconds(61))[0].suspect);
  EXPECT_TRUE(table.failed(kLink, FailureCause::kDigest, kStart + seconds(70)));
  EXPECT_TRUE(rows(kStart + seconds(100))[0].suspect);
  EXPECT_FALSE(rows(kStart + seconds(200))[0].suspect);
  EXPECT_EQ(rows()[0].digest_errors(), 3U);
}

TEST_F(PairTableTest, KeepsItsBound) {
  for (uint64_t i = 1; i <= 2 * limits::kLinksMax + 10; ++i) {
    table.link_made(LinkId{i}, {std::to_string(i), TransportKind::kShm, Direction::kSends}, 1,
                    kStart);
    table.link_lost(LinkId{i}, kStart);
  }
  EXPECT_EQ(rows().size(), 2 * limits::kLinksMax);
}

}  // namespace
}  // namespace pdjob::kvtransfer
