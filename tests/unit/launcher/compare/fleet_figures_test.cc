#include "launcher/compare/fleet_figures.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Percentile, IsTheSmallestValueThatTheShareDoesNotExceed) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({7}, 0.99), 7);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 0.5), 2);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 0.51), 3);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 0.99), 4);
  const Percentiles of = percentiles_of({4, 1, 3, 2, 5, 6, 7, 8, 9, 10});
  EXPECT_EQ(of.p50, 5);
  EXPECT_EQ(of.p90, 9);
  EXPECT_EQ(of.p99, 10);
}

TEST(ParseSlo, TakesBothInAnyOrder) {
  const auto slo = parse_slo("--slo", "itl=50ms,ttft=1s");
  ASSERT_TRUE(slo);
  EXPECT_EQ(slo->ttft, seconds(1));
  EXPECT_EQ(slo->itl, milliseconds(50));
}

TEST(ParseSlo, RefusesTheRest) {
  for (const char* text : {"", "ttft=1s", "ttft=1s,", "ttft=1s,ttft=2s", "ttft=0s,itl=1s",
                           "ttft=1,itl=2", "ttft=1s,itl=5ms,e2e=1s", "x=1s,itl=5ms"}) {
    EXPECT_FALSE(parse_slo("--slo", text)) << text;
  }
}

// Two requests within the SLO, one late, one refused, one that never ended.
simulation::TraceResult five_requests() {
  simulation::TraceResult result{.arrivals = seconds(10), .lasted = seconds(20)};
  result.outcomes = {
      {.at = seconds(0), .served = true, .ttft = milliseconds(200), .itl = milliseconds(20)},
      {.at = seconds(1), .served = true, .ttft = milliseconds(400), .itl = milliseconds(40)},
      {.at = seconds(2), .served = true, .ttft = seconds(3), .itl = milliseconds(10)},
      {.at = seconds(3), .refused = true},
      {.at = seconds(10)}};
  result.workers = {
      {.role = net::Role::kPrefill, .lived = seconds(20), .busy = seconds(10)},
      {.role = net::Role::kDecode, .lived = seconds(20), .busy = seconds(5)},
      {.role = net::Role::kDecode, .lived = seconds(20), .busy = seconds(15)},
  };
  result.samples.resize(2);
  result.samples[0].roles[0] = result.samples[1].roles[0] = {.workers = 1};
  result.samples[0].roles[1] = {
      .workers = 2, .busy = 0.5, .running = 4, .queued = 2, .kv_rows_used = 100};
  result.samples[1].roles[1] = {
      .workers = 2, .busy = 0.7, .running = 2, .queued = 0, .kv_rows_used = 300};
  return result;
}
simulation::TraceRun run_of_five() {
  simulation::TraceRun run;
  run.job.prefill = 1;
  run.job.decode = 2;
  run.trace.resize(5, {.prompt_tokens = 100, .output_tokens = 10, .blocks = {1}});
  return run;
}
constexpr simulation::Slo kSlo{.ttft = seconds(1), .itl = milliseconds(50)};

TEST(FleetFigures, CountEachRequestOnce) {
  const FleetFigures figures = figures_of(run_of_five(), five_requests(), kSlo);
  EXPECT_EQ(figures.name, "1 prefill + 2 decode");
  EXPECT_EQ(figures.requests, 5U);
  EXPECT_EQ(figures.served, 3U);
  EXPECT_EQ(figures.refused, 1U);
  EXPECT_EQ(figures.good, 2U);
  EXPECT_DOUBLE_EQ(figures.share(), 0.4);
  EXPECT_DOUBLE_EQ(figures.offered, 0.5);
  EXPECT_DOUBLE_EQ(figures.goodput, 0.2);
  EXPECT_DOUBLE_EQ(figures.prompt_tokens, 15);
  EXPECT_DOUBLE_EQ(figures.ttft.p50, 0.4);
  EXPECT_DOUBLE_EQ(figures.itl.p99, 0.04);
}

TEST(FleetFigures, AreMeansOfTheWorkersOfARole) {
  const FleetFigures figures = figures_of(run_of_five(), five_requests(), kSlo);
  EXPECT_DOUBLE_EQ(figures.roles[0].busy, 0.5);
  EXPECT_DOUBLE_EQ(figures.roles[1].busy, 0.5);
  EXPECT_DOUBLE_EQ(figures.roles[1].queued, 1);
  EXPECT_EQ(figures.roles[1].queued_max, 2U);
  EXPECT_DOUBLE_EQ(figures.roles[1].running, 3);
  EXPECT_EQ(figures.roles[1].kv_rows_max, 300U);
  EXPECT_DOUBLE_EQ(figures.worker_hours, 3 * 20 / 3600.0);
  EXPECT_TRUE(figures.busy_over_time[2].empty());
  EXPECT_EQ(figures.busy_over_time[1].size(), 2U);
}

TEST(FleetFigures, WorkersThatComeAndLeaveAreARangeAndCostTheirTime) {
  simulation::TraceResult result = five_requests();
  result.workers[2].lived = seconds(5);
  result.samples[1].roles[1].workers = 1;
  result.decisions = {{.at = seconds(12), .text = "decode: from 2 to 1 workers: why\n"}};
  const FleetFigures figures = figures_of(run_of_five(), result, kSlo);
  EXPECT_EQ(figures.name, "1 prefill + 1..2 decode");
  EXPECT_EQ(figures.workers(), 3U);
  EXPECT_DOUBLE_EQ(figures.worker_hours, 45 / 3600.0);
  EXPECT_DOUBLE_EQ(figures.roles[1].busy, 20 / 25.0);
  EXPECT_EQ(figures.decisions, std::vector<std::string>{"12s  decode: from 2 to 1 workers: why"});
}

FleetFigures fleet(const std::string& name, uint64_t good) {
  return {.name = name, .requests = 100, .good = good, .goodput = static_cast<double>(good) / 10};
}

TEST(Verdict, SaysWhatDisaggregationGainsOrCosts) {
  EXPECT_EQ(verdict(fleet("1 prefill + 1 decode", 60), fleet("2 both, chunk 32", 50)),
            "Disaggregation gains 20 %: 6 requests/s within the SLO with 1 prefill + 1 decode, 5 "
            "requests/s within the SLO with 2 both, chunk 32");
  EXPECT_TRUE(verdict(fleet("a", 45), fleet("b", 50)).starts_with("Disaggregation costs 10 %: "));
  EXPECT_TRUE(verdict(fleet("a", 100), fleet("b", 100))
                  .starts_with("Disaggregation changes nothing at this load: "));
  EXPECT_TRUE(verdict(fleet("a", 1), fleet("b", 0)).starts_with("Disaggregation gains all: "));
  EXPECT_TRUE(verdict(fleet("a", 0), fleet("b", 3)).starts_with("Disaggregation costs 100 %: "));
  EXPECT_TRUE(verdict(fleet("a", 0), fleet("b", 0))
                  .starts_with("Neither a nor b serves one request within the SLO"));
}

TEST(Better, IsMoreWithinTheSloThenTheShorterWait) {
  FleetFigures slow = fleet("slow", 50);
  slow.ttft.p90 = 2;
  FleetFigures fast = fleet("fast", 50);
  fast.ttft.p90 = 1;
  EXPECT_TRUE(better(fast, slow));
  EXPECT_FALSE(better(slow, fast));
  EXPECT_TRUE(better(fleet("more", 51), fast));
}

}  // namespace
}  // namespace pdjob::launcher
