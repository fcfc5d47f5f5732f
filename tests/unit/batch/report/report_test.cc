#include "batch/report/report.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

TEST(SizeCounts, QuantilesAreExactToAFifth) {
  SizeCounts counts;
  for (uint64_t i = 1; i <= 10'000; ++i) {
    counts.add(i);
  }
  EXPECT_EQ(counts.total(), 10'000U);
  for (const double part : {0.1, 0.5, 0.9, 0.99}) {
    const double exact = part * 10'000;
    EXPECT_LE(static_cast<double>(counts.quantile(part)), exact);
    EXPECT_GE(static_cast<double>(counts.quantile(part)), exact * 0.8);
  }
}

TEST(SizeCounts, EveryNumberIsInTheBucketThatBeginsAtOrBelowIt) {
  for (uint64_t number = 0; number < 100'000; number = number * 5 / 4 + 1) {
    SizeCounts counts;
    counts.add(number);
    ASSERT_EQ(counts.buckets().size(), 1U);
    const uint64_t first = counts.buckets().front().first;
    EXPECT_LE(first, number);
    EXPECT_GE(static_cast<double>(first), static_cast<double>(number) * 0.79);
  }
}

std::unique_ptr<Database> database_with(const char* answers) {
  const char* const layout[] = {
      "CREATE TABLE answers (id INTEGER PRIMARY KEY, kind, part, offset, length, ended_at, "
      "milliseconds, prompt_tokens, completion_tokens, attempts, cause);",
      answers};
  return Database::open(":memory:", layout).value();
}

TEST(Report, CountsWhatTheLedgerHas) {
  const auto database = database_with(
      "INSERT INTO answers VALUES (1, 0, 1, 0, 9, 1000, 200, 5, 10, 1, NULL),"
      "(2, 0, 1, 9, 9, 1200, 400, 5, 30, 2, NULL),"
      "(3, 1, 1, 0, 9, 1100, 100, 0, 0, 5, '<timeout>');");
  const ReportFacts facts = read_facts(*database).value();
  EXPECT_EQ(facts.answered, 2U);
  EXPECT_EQ(facts.failed, 1U);
  EXPECT_EQ(facts.completion_tokens, 40U);
  EXPECT_EQ(facts.attempts, 8U);
  EXPECT_EQ(facts.seconds, 200);
  uint64_t rows = 0;
  for (const auto& slice : facts.slices) {
    rows += slice.rows;
  }
  EXPECT_EQ(rows, 3U);
  EXPECT_LE(facts.slices.size(), 61U);
  const std::string html = report_html(facts);
  EXPECT_NE(html.find("&lt;timeout&gt;"), std::string::npos);
  EXPECT_EQ(html.find("<timeout>"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos) << "it needs nothing from elsewhere";
  EXPECT_NE(report_markdown(facts).find("| <timeout> | 1 |"), std::string::npos);
}

TEST(Report, CountsRestartsOfStages) {
  EXPECT_NE(report_markdown({.stage_restarts = {{"judge", 3}}})
                .find("| restarts of processes of stage judge | 3 |"),
            std::string::npos);
}

TEST(Report, AnEmptyBatchHasAReport) {
  const auto database = database_with("");
  EXPECT_NE(report_html(read_facts(*database).value()).find("</html>"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::batch
