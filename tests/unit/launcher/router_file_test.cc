#include "launcher/router_file.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

TEST(RouterFile, NamesWorkersAndHasTheRouterSectionOfAJobFile) {
  const auto file = parse_router_file("r.yaml", R"(
workers:
  prefill: [http://10.0.0.1:81]
  decode: [10.0.0.2:82, "http://[::1]:83"]
router:
  listen: 127.0.0.1:0
  decode_policy: power_of_two
)");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->prefill, (std::vector<net::HttpAddress>{{"10.0.0.1", 81}}));
  EXPECT_EQ(file->decode, (std::vector<net::HttpAddress>{{"10.0.0.2", 82}, {"::1", 83}}));
  EXPECT_TRUE(file->both.empty());
  EXPECT_EQ(file->router.decode_policy, router::PolicyKind::kPowerOfTwo);
}

TEST(RouterFile, TellsAllThatIsWrongWithItsPlace) {
  const auto file = parse_router_file("r.yaml", R"(
workers:
  prefill: [http://h:1/path]
router:
  listen: nowhere
  polcy: random
)");
  ASSERT_FALSE(file.has_value());
  for (const char* expected :
       {"r.yaml:3:12: workers.prefill:", "router.listen: must be HOST:PORT", "router.polcy"}) {
    EXPECT_NE(file.error().message.find(expected), std::string::npos) << expected << " in\n"
                                                                      << file.error().message;
  }
}

TEST(RouterFile, WantsWorkersThatCanServeARequest) {
  for (const char* text : {"router: {}", "workers: {prefill: [h:1]}", "workers: {decode: [h:1]}"}) {
    EXPECT_FALSE(parse_router_file("r.yaml", text).has_value()) << text;
  }
  EXPECT_TRUE(parse_router_file("r.yaml", "workers: {both: [h:1]}").has_value());
}

}  // namespace
}  // namespace pdjob::launcher
