#include "launcher/compare/scaled_comparison.h"

#include <chrono>

#include <gtest/gtest.h>

#include "launcher/compare/quickstart_model.h"
#include "launcher/compare/report_text.h"
#include "launcher/played/load_words.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// By default half a minute with few requests, one with many, and one with few.
SimulationAsked asked(const std::string& sizes, const std::string& rate = "0.2@30s,5@30s,0.2@30s",
                      Duration duration = seconds(90)) {
  Places places;
  places.models_here = false;
  const auto config = parse_job_config(
      "job.yaml", "name: j\nmodel: m\nengine: {sequences: 16, tokens_per_sequence: 512}\n" + sizes,
      places);
  EXPECT_TRUE(config) << config.error().message;
  SimulationAsked asked{.slo = {.ttft = seconds(2), .itl = milliseconds(60)}};
  auto made = simulated_job(*config, quickstart_model(), seconds(5));
  EXPECT_TRUE(made) << made.error().message;
  asked.job = *made;
  simulation::LoadWords words;
  words.rate = *simulation::parse_rate("--rate", rate);
  words.prompt = *simulation::parse_length("--prompt", "100");
  words.output = *simulation::parse_length("--output", "10");
  words.duration = duration;
  asked.load = *simulation::make_load(words, 1);
  return asked;
}

constexpr const char* kScales =
    "prefill: {workers: 1, scaling: {max: 4, ttft: 1s, down_after: 10s}}\n"
    "decode: {workers: 1}\n";

TEST(ScaledComparison, WorkersComeWithTheLoadAndLeaveAfterIt) {
  const SimulationAsked ask = asked(kScales);
  const FleetFigures scaled = simulated(ask, ask.job.job);
  EXPECT_EQ(scaled.served, scaled.requests);
  const RoleFigures& prefill = scaled.roles[0];
  EXPECT_EQ(prefill.workers_min, 1U);
  EXPECT_GT(prefill.workers, 2U);
  const Points& workers = scaled.workers_over_time[0];
  EXPECT_EQ(workers.front().second, 1);
  EXPECT_LT(workers.back().second, prefill.workers);
  // Each worker is paid from its start on, and no longer than it is there.
  EXPECT_GT(scaled.worker_hours, 2 * scaled.seconds / 3600);
  EXPECT_LT(scaled.worker_hours, scaled.workers() * scaled.seconds / 3600);
  ASSERT_FALSE(scaled.decisions.empty());
  EXPECT_NE(scaled.decisions.front().find("prefill: from 1 to 2 workers: "), std::string::npos);
}

TEST(ScaledComparison, TheSameJobWithoutScalingMissesTheSlo) {
  const SimulationAsked scales = asked(kScales);
  const SimulationAsked stays = asked("prefill: {workers: 1}\ndecode: {workers: 1}\n");
  EXPECT_GT(simulated(scales, scales.job.job).good, simulated(stays, stays.job.job).good);
}

TEST(ScaledComparison, IsBesideTheSmallestFleetThatServesAsMany) {
  const SimulationAsked ask = asked(kScales, "0.5@4s,6@4s", seconds(8));
  const Comparison found = compare_scaled(ask, [](const std::string&) {});
  ASSERT_TRUE(found.fixed);
  EXPECT_GE(found.fixed->share(), found.job.share());
  EXPECT_TRUE(found.fixed->decisions.empty());
  EXPECT_TRUE(found.headline().starts_with("Scaling takes ")) << found.headline();
  const std::string text = report_text(found);
  EXPECT_NE(text.find("Decisions of the autoscaler: "), std::string::npos) << text;
  EXPECT_EQ(text.find("by chunk"), std::string::npos) << text;
  const FleetFigures again = simulated(ask, ask.job.job);
  EXPECT_EQ(again.decisions, found.job.decisions);
  EXPECT_EQ(again.ttft_shares, found.job.ttft_shares);
}

TEST(ScalingVerdict, SaysWhatScalingCosts) {
  FleetFigures job{.name = "1..3 both", .requests = 4, .good = 3, .worker_hours = 1.5};
  const FleetFigures fixed{.name = "2 both", .requests = 4, .good = 3, .worker_hours = 2};
  EXPECT_EQ(scaling_verdict(job, &fixed),
            "Scaling takes 25.0 % less worker-hours than the smallest fleet of fixed size that "
            "serves as many: 75.0 % within the SLO with 1..3 both and 1.5 worker-hours; 2 both "
            "takes 2");
  EXPECT_TRUE(scaling_verdict(job, nullptr)
                  .starts_with("Scaling serves more than any fleet of fixed size that was tried"));
  job.good = 0;
  EXPECT_TRUE(scaling_verdict(job, &fixed).starts_with("Scaling serves no request"));
}

}  // namespace
}  // namespace pdjob::launcher
