#include "launcher/look/status_page.h"

#include <gtest/gtest.h>

#include "launcher/report/status.h"

namespace pdjob::launcher {
namespace {

TEST(StatusPage, HoldsWhatTheLauncherWrote) {
  Job job({{"router-0", net::Role::kRouter}, {"decode-0", net::Role::kDecode}}, JobTiming{}, "n");
  std::vector<Effect> effects;
  const Instant start{std::chrono::seconds(1000)};
  job.step(Started{}, start, effects);
  job.step(Spawned{{1}, 101}, start, effects);
  job.step(Spawned{{2}, 102}, start, effects);
  job.step(MessageArrived{"decode-0",
                          net::Registered{.worker = {.engine_id = "decode-0.n.2", .port = 8000}}},
           start, effects);
  job.step(MessageArrived{"decode-0",
                          net::HeartbeatSent{
                              .name = "decode-0",
                              .engine_id = "decode-0.n.2",
                              .sequence = 1,
                              .starved_permille = 430,
                              .load = {.requests_running = 3,
                                       .requests_queued = 4,
                                       .kv_rows_used = 5,
                                       .kv_rows_max = 20,
                                       .phases = {.queue_us = 12, .prefill_us = 13, .kv_us = 14},
                                       .tokens_computed = 600,
                                       .busy_us = 7,
                                       .ttft_sum_us = 8,
                                       .ttft_count = 9,
                                       .itl_sum_us = 10,
                                       .itl_count = 11}}},
           start + std::chrono::seconds(2), effects);
  LaunchPlan plan;
  plan.job = "demo";
  plan.models = {{.name = "tiny"}};
  const auto page = read_status(status_json({.plan = plan,
                                             .job = job,
                                             .launcher_pid = 100,
                                             .url = "http://127.0.0.1:8000",
                                             .now = start + std::chrono::seconds(75)}));
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(page->job, "demo");
  EXPECT_EQ(page->state, "starting");
  EXPECT_EQ(page->url, "http://127.0.0.1:8000");
  EXPECT_EQ(page->launcher_pid, 100);
  ASSERT_EQ(page->processes.size(), 2U);
  const ProcessLine& worker = page->processes[1];
  EXPECT_EQ(worker.name, "decode-0");
  EXPECT_EQ(worker.role, "decode");
  EXPECT_TRUE(worker.serving() && worker.is_worker());
  EXPECT_FALSE(page->processes[0].is_worker());
  EXPECT_EQ(worker.in_state, std::chrono::seconds(75));
  EXPECT_TRUE(worker.starved);
  EXPECT_DOUBLE_EQ(worker.starved_share, 0.43);
  EXPECT_FALSE(page->processes[0].starved);
  EXPECT_EQ(worker.load, job.processes().back().load);
}

TEST(StatusPage, OfAnotherTextIsAnError) {
  EXPECT_FALSE(read_status("not a status"));
  EXPECT_FALSE(read_status("{}"));
}

}  // namespace
}  // namespace pdjob::launcher
