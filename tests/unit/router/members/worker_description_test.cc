#include "router/members/worker_description.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

TEST(WorkerDescription, ReadsWhatAWorkerSaysOfItself) {
  const auto described = parse_worker_description(
      R"({"name":"p0","engine_id":"e","role":"prefill","model":"m","draining":false,"kv_address":{"remote_port":5},"fingerprint":"f1",)"
      R"("load":{"requests_running":1,"requests_queued":2,"tokens_queued":3,"kv_rows_used":4,"kv_rows_max":5},"new":[]})");
  ASSERT_TRUE(described);
  EXPECT_EQ(described->entry.name, "p0");
  EXPECT_EQ(described->entry.engine_id, "e");
  EXPECT_EQ(described->entry.role, net::Role::kPrefill);
  EXPECT_EQ(described->entry.model, "m");
  EXPECT_EQ(described->entry.fingerprint, "f1");
  EXPECT_EQ(described->entry.kv_address, R"({"remote_port":5})");
  EXPECT_EQ(described->load, (net::WorkerLoad{.requests_running = 1,
                                              .requests_queued = 2,
                                              .tokens_queued = 3,
                                              .kv_rows_used = 4,
                                              .kv_rows_max = 5}));
  EXPECT_FALSE(described->draining);
}

TEST(WorkerDescription, DoesWithoutWhatIsOptional) {
  const auto described =
      parse_worker_description(R"({"name":"d0","kv_address":null,"draining":true})");
  ASSERT_TRUE(described);
  EXPECT_EQ(described->entry.kv_address, "");
  EXPECT_TRUE(described->draining);
}

TEST(WorkerDescription, RefusesWhatIsNone) {
  for (const char* text : {"", "[]", "{}", R"({"name":5})", R"({"name":""})", "{\"name\":\"x\""}) {
    EXPECT_FALSE(parse_worker_description(text)) << text;
  }
}

}  // namespace
}  // namespace pdjob::router
