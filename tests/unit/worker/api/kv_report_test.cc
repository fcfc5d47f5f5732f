#include "worker/api/kv_report.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using kvtransfer::FailureCause;
using kvtransfer::PairStats;

PairStats pair() {
  PairStats pair{.peer = "prefill-0.n.1",
                 .transport = kvtransfer::TransportKind::kShm,
                 .state = PairStats::State::kOpen,
                 .epoch = 3,
                 .links_opened = 2,
                 .transfers = 4,
                 .bytes = 3'000'000'000,
                 .busy = std::chrono::milliseconds(1500),
                 .transfers_alive = 1,
                 .waits_alive = 5};
  pair.failures[static_cast<size_t>(FailureCause::kDigest)] = 7;
  return pair;
}

bool has_line(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

TEST(KvReport, CountsEachPairUnderItsLabels) {
  const std::string text = kv_pairs_metrics({pair()}, {.offers_alive = 8});
  const std::string labels = R"({direction="receives",peer="prefill-0.n.1",transport="shm"})";
  EXPECT_TRUE(has_line(text, "pdjob_kv_link_bytes_total" + labels + " 3000000000")) << text;
  EXPECT_TRUE(has_line(text, "pdjob_kv_link_transfer_seconds_total" + labels + " 1.5"));
  EXPECT_TRUE(has_line(text, "pdjob_kv_link_transfers_total" + labels + " 4"));
  EXPECT_TRUE(has_line(text, "pdjob_kv_link_opens_total" + labels + " 2"));
  EXPECT_TRUE(has_line(text, "pdjob_kv_link_digest_errors_total" + labels + " 7"));
  EXPECT_TRUE(has_line(text, "pdjob_kv_link_epoch" + labels + " 3"));
  EXPECT_TRUE(has_line(text, "pdjob_kv_link_up" + labels + " 1"));
  EXPECT_TRUE(has_line(text, "pdjob_kv_link_leases" + labels + " 5"));
  EXPECT_TRUE(has_line(text, "pdjob_kv_offers_alive 8"));
  EXPECT_NE(text.find(R"(pdjob_kv_link_failures_total{cause="digest",)"), std::string::npos);
  EXPECT_NE(text.find(R"(pdjob_kv_link_stalls_total{cause="silence",)"), std::string::npos);
}

TEST(KvReport, SaysNothingOfPairsThatAreForgotten) {
  EXPECT_EQ(kv_pairs_metrics({}, {}).find("pdjob_kv_link"), std::string::npos);
  EXPECT_NE(kv_pairs_metrics({}, {.fingerprints_refused = 2})
                .find("pdjob_kv_fingerprints_refused_total 2"),
            std::string::npos);
  EXPECT_EQ(kv_pairs_json({}), "[]");
}

TEST(KvReport, JsonHasTheRateThatATransferSees) {
  const std::string text = kv_pairs_json({pair()});
  EXPECT_NE(text.find(R"("gb_per_second":2)"), std::string::npos) << text;
  EXPECT_NE(
      text.find(
          R"("failures":{"cancelled":0,"peer":0,"link":0,"timeout":0,"stalled":0,"digest":7)"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("state":"open","epoch":3,"links_opened":2)"), std::string::npos) << text;
}

}  // namespace
}  // namespace pdjob::worker
