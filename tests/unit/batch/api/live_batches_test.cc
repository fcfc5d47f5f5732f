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
