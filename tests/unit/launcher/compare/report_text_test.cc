#include "launcher/compare/report_text.h"

#include <gtest/gtest.h>

#include "openai/json/json_edit.h"
#include "tests/unit/launcher/compare/report_test_fleets.h"

namespace pdjob::launcher {
namespace {

TEST(ReportText, SaysFirstWhatDisaggregationGains) {
  const std::string text = report_text(sample_comparison());
  EXPECT_TRUE(text.starts_with("Disaggregation gains 100 %: 8 requests/s within the SLO with 1 "
                               "prefill + 1 decode, 4 requests/s"))
      << text;
  for (const char* part :
       {"\nmodel  small, measured\n", "\nseed   7\n", "100 ms / 900 ms / 1.25 s",
        "prefill: queue mean, most", "1.5, 4", "32: 40.0 % within the SLO, 128: 40.0 %",
        "One router decides, not \"2\"."}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(ReportText, IsJsonForPrograms) {
  const std::string json = report_json(sample_comparison());
  EXPECT_TRUE(openai::is_valid_json(json)) << json;
  for (const char* part : {R"("share_within_slo":0.8)", R"("refused":0)", R"("unfinished":1)",
                           R"("best_both_chunk":32)", R"("seed":7)", R"("ttft_seconds":1)"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
  }
}

TEST(ReportText, WritesTimesAndCountsForPeople) {
  EXPECT_EQ(time_text(0), "0.0 ms");
  EXPECT_EQ(time_text(0.0483), "48.3 ms");
  EXPECT_EQ(time_text(0.25), "250 ms");
  EXPECT_EQ(time_text(1.254), "1.25 s");
  EXPECT_EQ(time_text(1234), "1234 s");
  EXPECT_EQ(count_text(7), "7");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(count_text(123456), "123,456");
}

}  // namespace
}  // namespace pdjob::launcher
