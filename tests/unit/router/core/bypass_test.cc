#include "router/core/bypass.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

RouterConfig keys(uint32_t bypass_tokens, uint32_t bypass_idle_tokens) {
  RouterConfig config;
  config.bypass_tokens = bypass_tokens;
  config.bypass_idle_tokens = bypass_idle_tokens;
  return config;
}

TEST(Bypass, NothingIsBypassedByDefault) {
  EXPECT_FALSE(bypass({}, {.tokens = 0, .decode_idle = true, .tokens_before = 1000}));
}

TEST(Bypass, AShortPromptIsBypassedUnderAnyLoad) {
  const RouterConfig config = keys(64, 0);
  EXPECT_TRUE(bypasses_always(config, 63));
  EXPECT_FALSE(bypasses_always(config, 64));
  EXPECT_EQ(bypass(config, {.tokens = 63, .tokens_before = 0}), BypassReason::kShort);
  EXPECT_FALSE(bypass(config, {.tokens = 64, .decode_idle = true, .tokens_before = 1000}));
}

TEST(Bypass, AnIdleDecodeWorkerComputesAPromptThatWouldWaitLongerThanItTakes) {
  const RouterConfig config = keys(0, 500);
  const BypassFacts facts{.tokens = 300, .decode_idle = true, .tokens_before = 300};
  EXPECT_EQ(bypass(config, facts), BypassReason::kIdle);
  BypassFacts sooner = facts;
  sooner.tokens_before = 299;
  EXPECT_FALSE(bypass(config, sooner));
  BypassFacts busy = facts;
  busy.decode_idle = false;
  EXPECT_FALSE(bypass(config, busy));
  BypassFacts long_prompt = facts;
  long_prompt.tokens = 500;
  long_prompt.tokens_before = 5000;
  EXPECT_FALSE(bypass(config, long_prompt));
}

TEST(Bypass, WithoutRoomAtThePrefillWorkerAnIdleDecodeWorkerComputesAtOnce) {
  EXPECT_EQ(bypass(keys(0, 500), {.tokens = 300, .decode_idle = true}), BypassReason::kIdle);
  EXPECT_FALSE(bypass(keys(0, 500), {.tokens = 300, .decode_idle = false}));
}

TEST(Bypass, ReasonsHaveWords) {
  EXPECT_STREQ(to_string(BypassReason::kShort), "short");
  EXPECT_STREQ(to_string(BypassReason::kIdle), "idle");
}

}  // namespace
}  // namespace pdjob::router
