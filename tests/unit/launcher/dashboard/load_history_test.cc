#include "launcher/dashboard/load_history.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::seconds;

std::vector<LoadOfWorker> workers(uint64_t tokens, uint64_t ttft_sum_us, uint64_t ttft_count,
                                  const std::string& engine = "d0.n.1") {
  net::WorkerLoad load{.requests_queued = 3,
                       .tokens_computed = tokens,
                       .ttft_sum_us = ttft_sum_us,
                       .ttft_count = ttft_count};
  return {{.engine_id = engine, .decodes = true, .load = load},
          {.engine_id = "p0.n.1", .decodes = false, .load = load}};
}

TEST(LoadHistory, HasWhatHappenedBetweenTwoLooks) {
  LoadHistory history;
  EXPECT_EQ(history.json(), R"({"interval_ms":1000,"points":[]})");
  history.look(workers(100, 5000, 1), Instant(seconds(10)));
  EXPECT_EQ(history.json(), R"({"interval_ms":1000,"points":[]})");
  // First tokens of prefill workers are never shown to a client.
  history.look(workers(200, 25000, 3), Instant(seconds(12)));
  EXPECT_EQ(history.json(), R"({"interval_ms":1000,"points":[[10000,null,6,100]]})");
}

TEST(LoadHistory, ANewIncarnationCountsAnew) {
  LoadHistory history;
  history.look(workers(100, 5000, 1), Instant(seconds(10)));
  history.look(workers(900, 9000, 9, "d0.n.2"), Instant(seconds(11)));
  EXPECT_EQ(history.json(), R"({"interval_ms":1000,"points":[[null,null,6,800]]})");
}

TEST(LoadHistory, IsBounded) {
  LoadHistory history;
  for (int i = 0; i < 2000; ++i) {
    history.look({}, Instant(seconds(10 + i)));
  }
  EXPECT_LT(history.json().size(), LoadHistory::kPointsMax * 20 + 100);
}

}  // namespace
}  // namespace pdjob::launcher
