#include "launcher/placement/crowding.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using Texts = std::vector<std::string>;

constexpr uint64_t kGib = uint64_t{1} << 30;

Node node(bool overcommits) {
  return {.name = "local", .cores = 2, .memory_bytes = 4 * kGib, .overcommits = overcommits};
}

TEST(Crowding, SaysWhatMoreWorkersDoToANodeBeforeTheyCome) {
  const Demand worker{.cores = 1, .memory_bytes = kGib, .role = "decode"};
  Placement placement({node(true)});
  placement.take(worker);
  EXPECT_EQ(crowding_after(placement, {{worker, 1}}), Texts{});
  EXPECT_EQ(crowding_after(placement, {{worker, 3}}),
            Texts{"node local has 2 cores for 4 engine threads: expect them to slow each other"});
  EXPECT_EQ(crowding_after(placement, {{worker, 63}}),
            (Texts{"node local has 2 cores for 64 engine threads: expect them to slow each other",
                   "node local lacks 61440 MiB of memory: expect processes to be killed"}));
}

TEST(Crowding, DoesNotRepeatWhatIsSoAlready) {
  const Demand worker{.cores = 3, .role = "decode"};
  Placement placement({node(true)});
  placement.take(worker);
  ASSERT_EQ(crowding(placement.shares()).size(), 1U);
  EXPECT_EQ(crowding_after(placement, {{worker, 0}}), Texts{});
}

TEST(Crowding, ANodeThatPromisesNothingTwiceIsNeverCrowded) {
  EXPECT_EQ(crowding_after(Placement({node(false)}), {{{.cores = 1, .role = "decode"}, 64}}),
            Texts{});
}

}  // namespace
}  // namespace pdjob::launcher
