#include "batch/api/batch_server.h"

#include "tests/unit/batch/api/batch_api_fixture.h"

namespace pdjob::batch {
namespace {

using BatchServerTest = BatchApiTest;

TEST_F(BatchServerTest, WantsTheKeyOfRoutersForFilesAndBatches) {
  for (const char* const path : {"/v1/files", "/v1/batches", "/v1/files/x/content", "/other"}) {
    EXPECT_EQ(ask("GET", path, {.key = ""}).status, 401) << path;
    EXPECT_EQ(ask("GET", path, {.key = "wrong"}).status, 401) << path;
  }
  EXPECT_EQ(ask("GET", "/v1/files").status, 200);
}

TEST_F(BatchServerTest, RefusesPathsAndMethodsThatItLacks) {
  EXPECT_EQ(ask("GET", "/v1/filesystem").status, 404);
  EXPECT_EQ(ask("GET", "/v1/files/x/other").status, 404);
  EXPECT_EQ(ask("DELETE", "/v1/batches/x").status, 405);
  EXPECT_EQ(ask("DELETE", "/v1/files").status, 405);
  EXPECT_EQ(ask("POST", "/v1/files/x/content", {.body = "{}"}).status, 405);
  EXPECT_EQ(ask("POST", "/metrics", {.body = "{}"}).status, 405);
}

TEST_F(BatchServerTest, EverybodyMayReadHealthAndMetrics) {
  EXPECT_EQ(ask("GET", "/health", {.key = ""}).status, 200);
  const net::HttpReply metrics = ask("GET", "/metrics", {.key = ""});
  EXPECT_EQ(metrics.status, 200);
  EXPECT_NE(metrics.body.find("pdjob_batch_rows_in_flight 0\n"), std::string::npos) << metrics.body;
}

TEST_F(BatchServerTest, MetricsCountRowsBatchesFilesAndRetries) {
  int asked = 0;
  router.answer = [&](const net::HttpRequest& /*request*/) {
    return ++asked == 1 ? std::pair(500, std::string(R"({"error":{}})"))
                        : std::pair(asked == 2 ? 400 : 200, RouterDouble::completion());
  };
  const std::string batch = begin(3);
  wait_status(batch, "completed");
  const std::string text = ask("GET", "/metrics").body;
  for (const char* const line :
       {"pdjob_batch_rows_total{outcome=\"answered\"} 2\n",
        "pdjob_batch_rows_total{outcome=\"failed\"} 1\n", "pdjob_batch_row_retries_total 1\n",
        "pdjob_batch_batches_total{status=\"completed\"} 1\n",
        "pdjob_batch_batches_total{status=\"failed\"} 0\n",
        "pdjob_batch_batches{status=\"in_progress\"} 0\n",
        "pdjob_batch_generation_tokens_total 4\n", "pdjob_batch_files 3\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("alice"), std::string::npos) << "no tenant is named";
}

TEST_F(BatchServerTest, ADrainEndsOnceNoRowRuns) {
  router.answer = [](const net::HttpRequest& /*request*/) { return std::pair(200, std::string()); };
  begin(2);
  ASSERT_TRUE(net::run_until(loop, [&] { return router.rows == 2; }));
  bool drained = false;
  server->drain([&] { drained = true; });
  EXPECT_TRUE(net::run_until(loop, [&] { return drained; }));
  EXPECT_EQ(server->batches().rows_in_flight(), 0U);
}

}  // namespace
}  // namespace pdjob::batch
