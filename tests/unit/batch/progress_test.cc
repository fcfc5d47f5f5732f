#include "batch/progress.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

TEST(Progress, SaysHowFarTheBatchIs) {
  const Progress progress{.rows = {.total = 1000, .answered = 497, .failed = 3},
                          .workers = 4,
                          .rows_per_second = 5,
                          .tokens_per_second = 81.6};
  EXPECT_EQ(progress_text(progress, ProgressForm::kLine),
            "500 of 1000 rows, 3 failed; 5 rows/s, 82 tokens/s; 4 workers; 1 min 40 s left");
  EXPECT_EQ(progress_text(progress, ProgressForm::kBar).substr(0, 23), "[==========          ] ");
}

TEST(Progress, AServerThatAnswersNothingIsToldInPlaceOfRates) {
  const Progress progress{.rows = {.total = 10, .answered = 4, .failed = 1},
                          .workers = 4,
                          .rows_per_second = 5,
                          .trouble = "127.0.0.1:9: Connection refused"};
  EXPECT_EQ(progress_text(progress, ProgressForm::kLine),
            "5 of 10 rows, 1 failed; 127.0.0.1:9: Connection refused");
  EXPECT_NE(status_json(progress, "running", "", 0).find("\"trouble\":\"127.0.0.1:9: Conn"),
            std::string::npos);
}

TEST(Progress, AnEmptyBatchHasABarToo) {
  EXPECT_EQ(progress_text({}, ProgressForm::kBar),
            "[                    ] 0 of 0 rows, 0 failed; 0 rows/s, 0 tokens/s");
}

TEST(Progress, EachStageIsALine) {
  EXPECT_EQ(stages_text({}), "");
  EXPECT_EQ(stages_text({{.name = "clean", .waiting = 3, .under_way = 8},
                         {.name = "judge", .restarts = 2}}),
            "stage clean: 3 rows wait, 8 under way; 0 restarts\n"
            "stage judge: 0 rows wait, 0 under way; 2 restarts\n");
}

TEST(Rates, AreThoseOfTheLastSeconds) {
  Rates rates;
  Progress progress;
  Instant now{std::chrono::hours(1)};
  for (int second = 0; second < 60; ++second) {
    const uint64_t more = second < 30 ? 10 : 100;
    progress.rows.answered += more;
    progress.rows.completion_tokens += 2 * more;
    rates.look(progress, now);
    now += std::chrono::seconds(1);
  }
  EXPECT_DOUBLE_EQ(progress.rows_per_second, 100);
  EXPECT_DOUBLE_EQ(progress.tokens_per_second, 200);
}

TEST(DurationText, IsShort) {
  EXPECT_EQ(duration_text(4.2), "5 s");
  EXPECT_EQ(duration_text(3723), "1 h 2 min");
}

}  // namespace
}  // namespace pdjob::batch
