#include "batch/api/batch_job.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tests/unit/batch/api/batch_api_fixture.h"

namespace pdjob::batch {
namespace {

class BatchJobTest : public BatchApiTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder.path() + "/job");
    write(rows(4));
  }
  void write(const std::string& input) { folder.write("job/input.jsonl", input); }
  void make() {
    job.reset();
    job = std::make_unique<BatchJob>(loop, BatchJobSetting{.folder = folder.path() + "/job",
                                                           .filename = "rows.jsonl",
                                                           .endpoint = "/v1/completions",
                                                           .rows_max = 100,
                                                           .in_flight_max = in_flight_max,
                                                           .server = router.address(),
                                                           .totals = &totals});
  }
  BatchJob::Prepared prepare() {
    make();
    std::optional<Result<BatchJob::Prepared>> done;
    job->prepare([&](Result<BatchJob::Prepared> result) { done = std::move(result); });
    EXPECT_TRUE(net::run_until(loop, [&] { return done.has_value(); }));
    EXPECT_TRUE(done->has_value());
    return **done;
  }
  BatchRun::End run(const std::function<void()>& meanwhile = [] {}) {
    std::optional<BatchRun::End> end;
    job->run([&](const BatchRun::End& how) { end = how; });
    EXPECT_TRUE(net::run_until(loop, [&] {
      if (!end) {
        meanwhile();
      }
      return end.has_value();
    }));
    return *end;
  }
  BatchJob::Finished finish(Rest rest) {
    std::optional<Result<BatchJob::Finished>> done;
    job->finish(rest, {.output = folder.path() + "/out", .errors = folder.path() + "/err"},
                [&](Result<BatchJob::Finished> result) { done = std::move(result); });
    EXPECT_TRUE(net::run_until(loop, [&] { return done.has_value(); }));
    EXPECT_TRUE(done->has_value());
    return **done;
  }

  uint64_t in_flight_max = 0;
  RunTotals totals;
  std::unique_ptr<BatchJob> job;
};

TEST_F(BatchJobTest, GoesFromItsInputToItsResults) {
  EXPECT_EQ(prepare().rows.total, 4U);
  EXPECT_TRUE(run().complete);
  EXPECT_EQ(totals.answered, 4U);
  const BatchJob::Finished finished = finish(Rest::kLeft);
  EXPECT_EQ(finished.rows.answered, 4U);
  EXPECT_EQ(finished.prompt_tokens, 12U);
  EXPECT_EQ(finished.error_bytes, 0U);
  EXPECT_EQ(finished.output_bytes, folder.read("out").size());
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/err")) << "it has no lines";
}

TEST_F(BatchJobTest, FinishingAgainAfterACrashGivesTheSame) {
  prepare();
  run();
  finish(Rest::kLeft);
  const std::string output = folder.read("out");
  prepare();
  EXPECT_EQ(finish(Rest::kLeft).rows.answered, 4U);
  EXPECT_EQ(folder.read("out"), output);
}

TEST_F(BatchJobTest, ExpiredRowsFailAndStayExpiredAfterACrash) {
  router.answer = [&](const net::HttpRequest& /*request*/) {
    return std::pair(200, router.rows == 1 ? RouterDouble::completion() : std::string());
  };
  prepare();
  const BatchRun::End end = run([&] {
    if (totals.answered == 1) {
      job->stop();
    }
  });
  EXPECT_FALSE(end.complete || end.broken);
  EXPECT_TRUE(finish(Rest::kExpired).expired);
  EXPECT_EQ(std::ranges::count(folder.read("err"), '\n'), 3);
  EXPECT_NE(folder.read("err").find("batch_expired"), std::string::npos);
  EXPECT_EQ(prepare().rows.failed, 3U);
  EXPECT_TRUE(finish(Rest::kLeft).expired) << "the ledger knows";
}

TEST_F(BatchJobTest, AYieldEndsTheRunWithWhatIsInFlightAndGoesOnLater) {
  in_flight_max = 1;
  router.answer = [&](const net::HttpRequest& /*request*/) {
    if (router.rows == 1) {
      job->yield();
    }
    return std::pair(200, RouterDouble::completion());
  };
  prepare();
  EXPECT_FALSE(job->progressed());
  const BatchRun::End end = run();
  EXPECT_FALSE(end.complete || end.broken);
  EXPECT_TRUE(job->progressed());
  EXPECT_EQ(router.rows, 1);
  EXPECT_EQ(totals.answered, 1U) << "what was in flight is noted";
  EXPECT_TRUE(run().complete);
  EXPECT_EQ(router.rows, 4) << "none is asked again";
}

TEST_F(BatchJobTest, RowsThatAreLeftAreInNoFile) {
  prepare();
  const BatchJob::Finished finished = finish(Rest::kLeft);
  EXPECT_EQ(finished.output_bytes + finished.error_bytes, 0U);
  EXPECT_FALSE(finished.expired);
}

TEST_F(BatchJobTest, DuplicatesAreFoundBeforeAnyRowRuns) {
  write(row(1) + row(2) + row(1));
  EXPECT_NE(prepare().errors.find("duplicate_custom_id"), std::string::npos);
  EXPECT_NE(prepare().errors.find("duplicate_custom_id"), std::string::npos)
      << "also a second time";
}

}  // namespace
}  // namespace pdjob::batch
