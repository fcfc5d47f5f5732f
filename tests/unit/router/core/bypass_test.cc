#include "router/core/bypass.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

RouterConfig keys(uint32_t bypass_tokens, DecodePrefills decode_prefills) {
  RouterConfig config;
  config.bypass_tokens = bypass_tokens;
  config.decode_prefills = decode_prefills;
  return config;
}

TEST(Bypass, NothingIsBypassedByDefault) {
  EXPECT_FALSE(bypass({}, {.tokens = 0, .prefill_before = 1000}));
  EXPECT_FALSE(bypass({}, {.tokens = 0}));
}

TEST(Bypass, AShortPromptIsBypassedUnderAnyLoad) {
  const RouterConfig config = keys(64, DecodePrefills::kNever);
  EXPECT_EQ(bypasses_always(config, 63, false), BypassReason::kShort);
  EXPECT_FALSE(bypasses_always(config, 64, false));
  EXPECT_FALSE(bypass(config, {.tokens = 64, .prefill_before = 1000}));
}

TEST(Bypass, ADecodeWorkerThatSharesItsCoresComputesEveryPromptByDefault) {
  EXPECT_EQ(bypasses_always({}, 100'000, true), BypassReason::kSharedCores);
  EXPECT_FALSE(bypasses_always({}, 100'000, false));
  for (const auto way : {DecodePrefills::kNever, DecodePrefills::kWaiting, DecodePrefills::kEven}) {
    EXPECT_FALSE(bypasses_always(keys(0, way), 100'000, true)) << "the job file says otherwise";
  }
}

TEST(Bypass, ADecodeWorkerComputesAPromptThatItHasDoneBeforeItsTurnComes) {
  const RouterConfig config = keys(0, DecodePrefills::kWaiting);
  EXPECT_EQ(bypass(config, {.tokens = 300, .prefill_before = 300}), BypassReason::kWaits);
  EXPECT_FALSE(bypass(config, {.tokens = 300, .prefill_before = 299}));
  EXPECT_EQ(bypass(config, {.tokens = 300, .decode_before = 50, .prefill_before = 350}),
            BypassReason::kWaits);
  EXPECT_FALSE(bypass(config, {.tokens = 300, .decode_before = 51, .prefill_before = 350}));
}

TEST(Bypass, ADecodeWorkerComputesAPromptWhileItHasNoMoreToCompute) {
  const RouterConfig config = keys(0, DecodePrefills::kEven);
  EXPECT_EQ(bypass(config, {.tokens = 300, .prefill_before = 0}), BypassReason::kWaits);
  EXPECT_EQ(bypass(config, {.tokens = 300, .decode_before = 9, .prefill_before = 9}),
            BypassReason::kWaits);
  EXPECT_FALSE(bypass(config, {.tokens = 300, .decode_before = 10, .prefill_before = 9}));
}

TEST(Bypass, WithoutRoomAtThePrefillWorkerADecodeWorkerComputesOnePromptAtATime) {
  for (const auto way : {DecodePrefills::kWaiting, DecodePrefills::kEven}) {
    EXPECT_EQ(bypass(keys(0, way), {.tokens = 300}), BypassReason::kWaits);
    EXPECT_FALSE(bypass(keys(0, way), {.tokens = 300, .decode_before = 1}));
  }
}

TEST(Bypass, APrefillWorkerServesAloneWhatTheDecodeWorkerHasTooMuchOf) {
  EXPECT_FALSE(spills({}, 0, 1000));
  EXPECT_FALSE(spills({}, 0, std::nullopt));
  RouterConfig config;
  config.bypass_busy_requests = 3;
  EXPECT_FALSE(spills(config, 0, 2));
  EXPECT_TRUE(spills(config, 0, 3));
  EXPECT_FALSE(spills(config, 1, 3));
  EXPECT_TRUE(spills(config, 1000, std::nullopt)) << "no decode worker is there";
}

TEST(Bypass, ReasonsHaveWords) {
  EXPECT_STREQ(to_string(BypassReason::kSharedCores), "shared_cores");
  EXPECT_STREQ(to_string(BypassReason::kShort), "short");
  EXPECT_STREQ(to_string(BypassReason::kWaits), "waits");
  EXPECT_STREQ(to_string(BypassReason::kBusy), "busy");
  EXPECT_STREQ(to_string(BypassReason::kPromptOnly), "prompt_only");
}

}  // namespace
}  // namespace pdjob::router
