#include "launcher/compare/report_page.h"

#include <gtest/gtest.h>

#include "launcher/compare/plot.h"
#include "tests/unit/launcher/compare/report_test_fleets.h"

namespace pdjob::launcher {
namespace {

TEST(ReportPage, NeedsNothingElse) {
  const std::string page = report_page(sample_comparison());
  for (const char* part : {"<script", "http:", "https:", "src=", "url(", "@import", "<link"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
  EXPECT_TRUE(page.starts_with("<!doctype html>\n<html lang=\"en\">"));
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(page.find("name=\"viewport\""), std::string::npos);
}

TEST(ReportPage, EscapesWhatUsersWrote) {
  const std::string page = report_page(sample_comparison());
  EXPECT_EQ(page.find("a<b>.yaml"), std::string::npos);
  EXPECT_NE(page.find("a&lt;b&gt;.yaml"), std::string::npos);
  EXPECT_NE(page.find("not &quot;2&quot;."), std::string::npos);
}

TEST(Plot, EndsItsAxesAtRoundNumbers) {
  EXPECT_DOUBLE_EQ(axis_end(0), 1);
  EXPECT_DOUBLE_EQ(axis_end(0.7), 1);
  EXPECT_DOUBLE_EQ(axis_end(1.5), 2);
  EXPECT_DOUBLE_EQ(axis_end(34), 50);
  EXPECT_DOUBLE_EQ(axis_end(60), 100);
}

TEST(Plot, DrawsPointsBetweenItsAxes) {
  const std::string html = plot_html({.title = "T & t",
                                      .x_name = "seconds",
                                      .y_name = "share",
                                      .lines = {{.name = "a", .look = "job", .points = {{0, 0}, {1, 1}}},
                                                {.name = "none", .look = "both", .points = {}}},
                                      .x_limit = 0.5,
                                      .y_max = 1});
  EXPECT_NE(html.find("points=\"46.0,164.0 348.0,10.0\""), std::string::npos) << html;
  EXPECT_NE(html.find("aria-label=\"T &amp; t\""), std::string::npos);
  EXPECT_NE(html.find("SLO"), std::string::npos);
  EXPECT_EQ(html.find("none"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::launcher
