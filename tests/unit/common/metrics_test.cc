#include "common/metrics.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace pdjob {
namespace {

TEST(Metrics, WritesThePrometheusText) {
  Metrics metrics;
  Counter served = metrics.counter("pdjob_requests_total", "Requests.", {{"role", "decode"}});
  Counter failed = metrics.counter("pdjob_requests_total", "Requests.", {{"role", "prefill"}});
  Gauge queued = metrics.gauge("pdjob_queued", "Waiting.");
  Histogram wait = metrics.histogram("pdjob_wait_seconds", "Wait.", {0.5, 1.0});
  served.add();
  served.add(2);
  failed.add();
  queued.set(7);
  queued.set(5);
  wait.observe(0.25);
  wait.observe(3);

  const std::string text = metrics.text();
  for (const char* line :
       {"# HELP pdjob_requests_total Requests.\n", "# TYPE pdjob_requests_total counter\n",
        "pdjob_requests_total{role=\"decode\"} 3\n", "pdjob_requests_total{role=\"prefill\"} 1\n",
        "pdjob_queued 5\n", "pdjob_wait_seconds_count 2\n", "pdjob_wait_seconds_sum 3.25\n",
        "pdjob_wait_seconds_bucket{le=\"0.5\"} 1\n",
        "pdjob_wait_seconds_bucket{le=\"+Inf\"} 2\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is missing in\n" << text;
  }
}

TEST(Metrics, HandsOutTheSameCounterForTheSameLabels) {
  Metrics metrics;
  metrics.counter("pdjob_a_total", "A.").add();
  metrics.counter("pdjob_a_total", "A.").add();
  EXPECT_NE(metrics.text().find("pdjob_a_total 2\n"), std::string::npos);
}

TEST(Metrics, EscapesLabelValues) {
  Metrics metrics;
  metrics.gauge("pdjob_a", "A.", {{"model", "a\"b\\c\nd"}}).set(1);
  EXPECT_NE(metrics.text().find("pdjob_a{model=\"a\\\"b\\\\c\\nd\"} 1\n"), std::string::npos);
}

TEST(MetricsDeathTest, RefusesAMalformedName) {
  Metrics metrics;
  EXPECT_DEATH(metrics.counter("not a name", ""), "not a name");
}

TEST(Metrics, HasAscendingLatencyBounds) {
  const std::vector<double> bounds = latency_bounds();
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
  EXPECT_EQ(bounds.front(), 0.001);
  EXPECT_EQ(bounds.back(), 60.0);
}

}  // namespace
}  // namespace pdjob
