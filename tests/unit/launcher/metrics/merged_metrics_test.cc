#include "launcher/metrics/merged_metrics.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

std::string merged(std::string_view page) {
  MergedMetrics out(1 << 20);
  out.add("d0", page);
  return out.text();
}

TEST(MergedMetrics, HasEachFamilyOnceAndAllSamples) {
  MergedMetrics out(1 << 20);
  out.add("p0", "# HELP b_total B.\n# TYPE b_total counter\nb_total 1\nb_total{x=\"y\"} 2.5e+06\n");
  out.add("d0",
          "# HELP a A.\n# TYPE a histogram\na_bucket{le=\"+Inf\"} 3\na_sum 0.25\na_count 3\n"
          "# HELP b_total Other words.\n# TYPE b_total counter\nb_total 4\n");
  EXPECT_EQ(out.text(),
            "# HELP a A.\n# TYPE a histogram\na_bucket{process=\"d0\",le=\"+Inf\"} 3\n"
            "a_sum{process=\"d0\"} 0.25\na_count{process=\"d0\"} 3\n"
            "# HELP b_total B.\n# TYPE b_total counter\nb_total{process=\"p0\"} 1\n"
            "b_total{process=\"p0\",x=\"y\"} 2.5e+06\nb_total{process=\"d0\"} 4\n");
}

TEST(MergedMetrics, KeepsLabelsAsTheyAre) {
  EXPECT_EQ(merged("a{b=\"}\\\"\\\\,\",c=\"\"} -1 1700000000\r\n"),
            "a{process=\"d0\",b=\"}\\\"\\\\,\",c=\"\"} -1 1700000000\n");
  EXPECT_EQ(merged("a{b=\"1\",} NaN\n"), "a{process=\"d0\",b=\"1\"} NaN\n");
  EXPECT_EQ(merged("a{process=\"x\"} 1\n"), "a{process=\"d0\",exported_process=\"x\"} 1\n");
}

TEST(MergedMetrics, DropsWhatIsNotInTheFormat) {
  for (const char* line : {"a", "a ", "1a 1", "{} 1", "a{b} 1", "a{b=\"} 1", "a{b=\"1\" 1",
                           "a{b=\"1\";} 1", "a 1; drop", "a <script>", "a{b=\"1\"\\", "# EOF",
                           "# HELP", "# TYPE 7 counter", "\x01 1"}) {
    EXPECT_EQ(merged(line), "") << line;
  }
  EXPECT_EQ(merged("a{l=\"" + std::string(10'000, 'x') + "\"} 1\nb 2\n"), "b{process=\"d0\"} 2\n");
}

TEST(MergedMetrics, IsBounded) {
  MergedMetrics out(64);
  std::string page;
  for (int i = 0; i < 100; ++i) {
    page += "a" + std::to_string(i) + " 1\n";
  }
  out.add("d0", page);
  EXPECT_LE(out.text().size(), 64U);
  EXPECT_TRUE(out.text().starts_with("a0{process=\"d0\"} 1\n"));
}

}  // namespace
}  // namespace pdjob::launcher
