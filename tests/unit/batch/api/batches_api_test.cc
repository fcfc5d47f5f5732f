#include "batch/api/batches_api.h"

#include <algorithm>

#include "tests/unit/batch/api/batch_api_fixture.h"

namespace pdjob::batch {
namespace {

class BatchesApiTest : public BatchApiTest {
 protected:
  void hang() {
    router.answer = [](const net::HttpRequest& /*request*/) {
      return std::pair(200, std::string());
    };
  }
};

TEST_F(BatchesApiTest, ABatchIsThereOnceItIsAnsweredAlsoAfterARestart) {
  hang();
  const std::string batch = begin(2);
  ASSERT_TRUE(batch.starts_with("batch_"));
  open();
  EXPECT_NE(status_of(batch), "");
}

TEST_F(BatchesApiTest, OfAnotherTenantIsNotThere) {
  hang();
  const std::string batch = begin(1);
  EXPECT_EQ(ask("GET", "/v1/batches/" + batch, {.tenant = "bob"}).status, 404);
  EXPECT_EQ(ask("POST", "/v1/batches/" + batch + "/cancel", {.tenant = "bob", .body = "{}"}).status,
            404);
  EXPECT_EQ(ask("GET", "/v1/batches", {.tenant = "bob"}).body.find(batch), std::string::npos);
  const std::string file = member(upload(rows(1)).body, "id");
  EXPECT_EQ(create(file, "bob").status, 404) << "nor are its files";
}

TEST_F(BatchesApiTest, TakesOnlyFilesThatClientsUploadedForBatches) {
  EXPECT_EQ(create("file-unknown").status, 404);
  const std::string batch = begin(1);
  const std::string output = member(wait_status(batch, "completed"), "output_file_id");
  EXPECT_EQ(create(output).status, 400);
}

TEST_F(BatchesApiTest, EachTenantHasALimitOfBatchesThatHaveNotEnded) {
  config.batches_max = 1;
  open();
  hang();
  ASSERT_NE(begin(1), "");
  const std::string file = member(upload(rows(1)).body, "id");
  const net::HttpReply refused = create(file);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(member(refused.body, "code"), "batch_limit_exceeded");
  EXPECT_NE(begin(1, "bob"), "");
}

TEST_F(BatchesApiTest, ACancelEndsTheBatchAndASecondOneSaysTheSame) {
  hang();
  const std::string batch = begin(2);
  wait_status(batch, "in_progress");
  const std::string path = "/v1/batches/" + batch + "/cancel";
  EXPECT_EQ(member(ask("POST", path, {.body = "{}"}).body, "status"), "cancelling");
  wait_status(batch, "cancelled");
  EXPECT_EQ(ask("POST", path, {.body = "{}"}).status, 409) << "it has ended";
}

TEST_F(BatchesApiTest, ACancelHoldsAfterARestart) {
  hang();
  const std::string batch = begin(2);
  wait_status(batch, "in_progress");
  ask("POST", "/v1/batches/" + batch + "/cancel", {.body = "{}"});
  open();
  wait_status(batch, "cancelled");
}

TEST_F(BatchesApiTest, CreatesUnderWayCountTowardsTheLimit) {
  hang();
  config.batches_max = 2;
  open();
  const std::string file = member(upload(rows(1)).body, "id");
  const std::vector<int> statuses = ask_together(5, "/v1/batches", batch_of(file));
  EXPECT_EQ(std::ranges::count(statuses, 200), 2);
  EXPECT_EQ(std::ranges::count(statuses, 429), 3);
}

TEST_F(BatchesApiTest, BadRequestsAreRefused) {
  EXPECT_EQ(ask("POST", "/v1/batches", {.body = "no json"}).status, 400);
  EXPECT_EQ(ask("GET", "/v1/batches?limit=1000").status, 400);
  EXPECT_EQ(ask("GET", "/v1/batches?after=batch_unknown").status, 404);
}

}  // namespace
}  // namespace pdjob::batch
