#include "worker/foreign/engine_lists.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using Texts = std::vector<std::string>;

TEST(EngineLists, AnEngineHasTheRoutesOfItsDocument) {
  const Texts routes = {"/v1/messages", "/v1/rerank", "/pooling"};
  EXPECT_EQ(listed_routes(routes, R"({"openapi":"3.1.0","paths":{"/health":{"get":{}},
                                      "/v1/rerank":{"post":{}},"/v1/messages/x":{}}})"),
            Texts{"/v1/rerank"});
  EXPECT_EQ(listed_routes(routes, R"({"paths":{}})"), Texts{});
  EXPECT_EQ(listed_routes(routes, R"({"detail":"Not Found"})"), routes);
  EXPECT_EQ(listed_routes(routes, "nonsense"), routes);
}

TEST(EngineLists, TheFirstListSaysSinceWhenAndHowLong) {
  net::WorkerEntry entry{.name = "d0", .model = "m"};
  EXPECT_TRUE(
      take_models({.id = "m", .created = 7, .context_max = 2048, .adapters = {"sql"}}, entry));
  EXPECT_EQ(entry.created, 7U);
  EXPECT_EQ(entry.context_max, 2048U);
  EXPECT_EQ(entry.adapters, Texts{"sql"});
  EXPECT_FALSE(
      take_models({.id = "m", .created = 8, .context_max = 2048, .adapters = {"sql"}}, entry))
      << "the time is that of the answer";
  EXPECT_TRUE(take_models({.id = "m", .created = 9, .context_max = 2048, .adapters = {}}, entry));
  EXPECT_EQ(entry.created, 7U);
  EXPECT_TRUE(entry.adapters.empty());
}

}  // namespace
}  // namespace pdjob::worker
