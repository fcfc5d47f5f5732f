#include "batch/api/live_batches.h"

#include "tests/unit/batch/api/batch_api_fixture.h"

namespace pdjob::batch {
namespace {

using LiveBatchesTest = BatchApiTest;

TEST_F(LiveBatchesTest, RowsAreSentInTheNameOfTheirTenant) {
  const std::string batch = begin(2);
  wait_status(batch, "completed");
  EXPECT_EQ(router.tenant, "alice");
  EXPECT_EQ(router.rows, 2);
}

TEST_F(LiveBatchesTest, ARestartGoesOnAndAsksNoAnsweredRowAgain) {
  int answered = 0;
  router.answer = [&](const net::HttpRequest& /*request*/) {
    return std::pair(200, answered < 3 ? (++answered, RouterDouble::completion()) : std::string());
  };
  const std::string batch = begin(5);
  ASSERT_TRUE(net::run_until(loop, [&] {
    return ask("GET", "/v1/batches/" + batch).body.find("\"completed\":3") != std::string::npos;
  }));
  open();
  router.rows = 0;
  router.answer = [](const net::HttpRequest& /*request*/) {
    return std::pair(200, RouterDouble::completion());
  };
  const std::string ended = wait_status(batch, "completed");
  EXPECT_EQ(router.rows, 2);
  const std::string output =
      ask("GET", "/v1/files/" + member(ended, "output_file_id") + "/content").body;
  EXPECT_EQ(std::ranges::count(output, '\n'), 5);
}

TEST_F(LiveBatchesTest, AWrongLineFailsTheBatchBeforeAnyRow) {
  const std::string file = member(upload(row(1) + "no json\n" + row(1)).body, "id");
  const std::string batch = member(create(file).body, "id");
  const std::string ended = wait_status(batch, "failed");
  EXPECT_NE(ended.find("\"line\":2"), std::string::npos) << ended;
  EXPECT_EQ(router.rows, 0);
}

TEST_F(LiveBatchesTest, ABatchWhoseInputCannotBeReadFailsWithTheReason) {
  lifecycle = {.tries_max = 2, .retry_min = std::chrono::milliseconds(1)};
  const std::string file = member(upload(rows(2)).body, "id");
  config.disk_free_min = uint64_t{1} << 60;  // Batches wait.
  open();
  ASSERT_TRUE(net::run_until(loop, [&] { return upload("x").status == 503; }));
  const std::string batch = member(create(file).body, "id");
  ASSERT_TRUE(std::filesystem::remove(config.dir + "/batches/" + batch + "/input.jsonl"));
  config.disk_free_min = 0;
  open();
  const std::string ended = wait_status(batch, "failed");
  EXPECT_NE(ended.find("\"code\":\"server_error\""), std::string::npos) << ended;
  EXPECT_NE(ended.find(batch + "/input.jsonl"), std::string::npos) << ended;
  EXPECT_EQ(ended.find(config.dir), std::string::npos) << "clients need not know where it is";
  EXPECT_TRUE(
      net::run_until(loop, [&] { return std::filesystem::is_empty(config.dir + "/batches"); }));
}

TEST_F(LiveBatchesTest, ARefusedKeyFailsNoRowAndIsToldUntilItIsMended) {
  lifecycle = {.retry_min = std::chrono::milliseconds(1),
               .retry_max = std::chrono::milliseconds(10)};
  open();
  router.answer = [](const net::HttpRequest& /*request*/) {
    return std::pair(401, std::string(R"({"error":{}})"));
  };
  const std::string batch = begin(20);
  std::string object;
  EXPECT_TRUE(net::run_until(loop, [&] {
    object = ask("GET", "/v1/batches/" + batch).body;
    return object.find("rows_refused") != std::string::npos;
  })) << object;
  EXPECT_EQ(member(object, "status"), "in_progress");
  EXPECT_NE(object.find("\"failed\":0"), std::string::npos) << object;
  router.answer = [](const net::HttpRequest& /*request*/) {
    return std::pair(200, RouterDouble::completion());
  };
  const std::string ended = wait_status(batch, "completed");
  EXPECT_NE(ended.find("\"completed\":20"), std::string::npos) << ended;
  EXPECT_NE(ended.find("\"errors\":null"), std::string::npos) << ended;
  EXPECT_EQ(ask("GET", "/metrics").body.find("pdjob_batch_failures_total 0\n"), std::string::npos);
}

TEST_F(LiveBatchesTest, AnEndedBatchLeavesNoFolder) {
  const std::string batch = begin(1);
  wait_status(batch, "completed");
  EXPECT_TRUE(
      net::run_until(loop, [&] { return std::filesystem::is_empty(config.dir + "/batches"); }));
}

TEST_F(LiveBatchesTest, ABatchGoesOnWhenItsInputFileIsDeleted) {
  router.answer = [](const net::HttpRequest& /*request*/) {
    return std::pair(503, std::string("{}"));
  };
  const std::string file = member(upload(rows(2)).body, "id");
  const std::string batch = member(create(file).body, "id");
  wait_status(batch, "in_progress");
  ASSERT_EQ(ask("DELETE", "/v1/files/" + file).status, 200);
  router.answer = [](const net::HttpRequest& /*request*/) {
    return std::pair(200, RouterDouble::completion());
  };
  wait_status(batch, "completed");
}

TEST_F(LiveBatchesTest, OnlySoManyBatchesRunAtOnce) {
  config.running_max = 1;
  open();
  router.answer = [](const net::HttpRequest& /*request*/) { return std::pair(200, std::string()); };
  const std::string first = begin(1);
  wait_status(first, "in_progress");
  const std::string second = begin(1);
  wait_status(second, "in_progress");
  net::run_for(loop, std::chrono::milliseconds(100));
  EXPECT_EQ(server->batches().rows_in_flight(), 1U);
  ask("POST", "/v1/batches/" + first + "/cancel", {.body = "{}"});
  wait_status(first, "cancelled");
  EXPECT_TRUE(net::run_until(loop, [&] { return router.rows == 2; }));
}

}  // namespace
}  // namespace pdjob::batch
