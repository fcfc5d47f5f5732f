#include "launcher/plan/router_file.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

TEST(RouterFile, NamesWorkersAndHasTheRouterSectionOfAJobFile) {
  const auto file = parse_router_file("r.yaml", R"(
workers:
  prefill: [http://10.0.0.1:81, "http://10.0.0.1:84?bootstrap_port=8999"]
  decode: [10.0.0.2:82, "http://[::1]:83"]
router:
  listen: 127.0.0.1:0
  decode_policy: power_of_two
)");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  using net::Role;
  EXPECT_EQ(file->workers,
            (std::vector<router::StaticWorker>{{Role::kPrefill, {"10.0.0.1", 81}},
                                               {Role::kPrefill, {"10.0.0.1", 84}, 8999},
                                               {Role::kDecode, {"10.0.0.2", 82}},
                                               {Role::kDecode, {"::1", 83}}}));
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

TEST(RouterFile, KnowsABootstrapPortOfPrefillWorkersOnly) {
  for (const char* text : {"workers: {prefill: ['h:1?bootstrap_port=0'], decode: [h:2]}",
                           "workers: {prefill: ['h:1?bootstrap_port=70000'], decode: [h:2]}",
                           "workers: {prefill: ['h:1?port=7'], decode: [h:2]}",
                           "workers: {prefill: [h:1], decode: ['h:2?bootstrap_port=7']}"}) {
    EXPECT_FALSE(parse_router_file("r.yaml", text).has_value()) << text;
  }
}

TEST(RouterFile, KnowsWhereAnyWorkerPublishesWhatItHolds) {
  const auto file = parse_router_file(
      "r.yaml",
      "workers: {both: ['h:1?kv_events_port=5557', 'h:2?kv_events_port=6557&kv_replay_port=6558'], "
      "prefill: ['h:3?bootstrap_port=7&kv_events_port=8'], decode: [h:4]}");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto port_of = [&](uint16_t port) {
    return *std::ranges::find_if(
        file->workers, [&](const router::StaticWorker& one) { return one.address.port == port; });
  };
  EXPECT_EQ(port_of(1).kv_events_port, 5557);
  EXPECT_EQ(port_of(1).kv_replay_port, 0);
  EXPECT_EQ(port_of(2).kv_replay_port, 6558);
  EXPECT_EQ(port_of(3).kv_events_port, 8);
  EXPECT_EQ(port_of(3).bootstrap_port, 7);
  for (const char* address : {"h:1?kv_events_port=0", "h:1?kv_events_port", "h:1?", "h:1?&",
                              "h:1?kv_replay_port=7", "h:1?kv_events_port=7&", "h:1?kv_port=1"}) {
    const std::string text = "workers: {both: ['" + std::string(address) + "']}";
    EXPECT_FALSE(parse_router_file("r.yaml", text).has_value()) << address;
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
