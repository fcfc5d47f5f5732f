#include "router/router_config.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

TEST(RouterConfig, ReadsEveryKey) {
  ConfigReader in = ConfigReader::parse(
      "job.yaml",
      "listen: 0.0.0.0:80\nprefill_policy: round_robin\ndecode_policy: power_of_two\n"
      "fallback: refuse\nattempts: 5\nrequest_timeout: 5s\nqueue_timeout: 250ms\n"
      "connect_timeout: 1s\ndrain_timeout: 2s\nrequests_max: 7\n");
  RouterConfig config;
  read(in, config);
  EXPECT_EQ(in.finish(), "");
  EXPECT_EQ(config.listen, "0.0.0.0:80");
  EXPECT_EQ(config.prefill_policy, PolicyKind::kRoundRobin);
  EXPECT_EQ(config.decode_policy, PolicyKind::kPowerOfTwo);
  EXPECT_EQ(config.fallback, Fallback::kRefuse);
  EXPECT_EQ(config.attempts, 5U);
  EXPECT_EQ(config.queue_timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(config.requests_max, 7U);
}

TEST(RouterConfig, RefusesWhatIsOutOfBounds) {
  ConfigReader in =
      ConfigReader::parse("job.yaml", "attempts: 0\nrequests_max: 0\nfallback: hope\n");
  RouterConfig config;
  read(in, config);
  const std::string errors = in.finish();
  for (const char* key : {"attempts", "requests_max", "fallback"}) {
    EXPECT_NE(errors.find(key), std::string::npos) << errors;
  }
}

}  // namespace
}  // namespace pdjob::router
