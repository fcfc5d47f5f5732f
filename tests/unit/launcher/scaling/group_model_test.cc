#include "launcher/scaling/group_model.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A worker's work in half a second.
struct Work {
  uint64_t prompts = 0;    // Of 100 tokens, 1 ms a token.
  uint64_t generated = 0;  // 10 ms a token.
};

double workers_needed(net::Role role, const GroupScaling& target, const Work& own,
                      const Work& of_others) {
  GroupModel model(role, target);
  net::WorkerLoad load{.requests_running = 2};
  Instant now(seconds(1000));
  for (int i = 0; i < 200; ++i, now += milliseconds(500)) {
    const bool with_others = i % 2 == 1;
    for (const Work& work : {own, with_others ? of_others : Work{}}) {
      load.tokens_computed += 100 * work.prompts + work.generated;
      load.busy_us += 100'000 * work.prompts + 10'000 * work.generated;
      load.ttft_count += role == net::Role::kPrefill ? work.prompts : 0;
      load.ttft_sum_us += role == net::Role::kPrefill ? 200'000 * work.prompts : 0;
      load.itl_count += work.generated;
      load.itl_sum_us += 10'000 * work.generated;
    }
    model.take({{"e", load}}, now);
  }
  return model.need(seconds(2), 1).workers;
}

TEST(GroupModel, APrefillWorkerThatAlsoDecodesIsMeasuredByItsPromptsAlone) {
  const GroupScaling target{.workers_max = 9, .ttft = milliseconds(500)};
  const Work own{.prompts = 2};
  const double alone = workers_needed(net::Role::kPrefill, target, own, {});
  EXPECT_NEAR(alone, 0.5, 0.05) << "400 tokens a second of 1,000, at a load of 80 %";
  EXPECT_NEAR(workers_needed(net::Role::kPrefill, target, own, {.generated = 20}), alone,
              0.02 * alone);
}

// A lone prompt takes half of the target.
TEST(GroupModel, PrefillWorkersAreServersOfOneQueue) {
  const GroupScaling target{.workers_max = 9, .ttft = milliseconds(200)};
  EXPECT_NEAR(workers_needed(net::Role::kPrefill, target, {.prompts = 2}, {}), 0.8, 0.05)
      << "400 tokens a second of 1,000: one worker may be busy for half of the time";
  EXPECT_NEAR(workers_needed(net::Role::kPrefill, target, {.prompts = 16}, {}), 3.9, 0.15)
      << "3,200 tokens a second: each of four workers may be busy for 82 %";
}

TEST(GroupModel, ADecodeWorkerThatAlsoComputesPromptsIsMeasuredByItsTokensAlone) {
  const GroupScaling target{.workers_max = 9, .itl = milliseconds(20)};
  const Work own{.generated = 20};
  const double alone = workers_needed(net::Role::kDecode, target, own, {});
  EXPECT_GT(alone, 0.1);
  EXPECT_NEAR(workers_needed(net::Role::kDecode, target, own, {.prompts = 2}), alone, 0.02 * alone);
}

TEST(GroupModel, NoWorkerComesForWorkInTheBackground) {
  GroupModel model(net::Role::kPrefill, {.workers_max = 9, .ttft = milliseconds(500)});
  net::WorkerLoad load{.background_requests = 20};
  Instant now(seconds(1000));
  for (int i = 0; i < 200; ++i, now += milliseconds(500)) {
    load.tokens_computed += 500;  // All the time.
    load.busy_us += 500'000;
    load.background_tokens += 500;
    load.background_busy_us += 500'000;
    model.take({{"e", load}}, now);
  }
  EXPECT_EQ(model.need(seconds(2), 1).workers, 0);
}

}  // namespace
}  // namespace pdjob::launcher
