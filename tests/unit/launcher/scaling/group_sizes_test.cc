#include "launcher/scaling/group_sizes.h"

#include <gtest/gtest.h>

#include "tests/support/job_sizes.h"
#include "tests/unit/launcher/job/living_job.h"

namespace pdjob::launcher {
namespace {

constexpr GroupLimits kLimits{.workers_per_group_max = 8, .workers_max = 10};
const Demand kDemand{.cores = 1, .role = "decode", .model = "m"};

LivingJob living_job(std::vector<Node> nodes = {}) {
  return LivingJob({{.name = "router-0", .role = net::Role::kRouter},
                    {"prefill-0", net::Role::kPrefill, "m", kDemand},
                    {"decode-0", net::Role::kDecode, "m", kDemand}},
                   {.nodes = std::move(nodes), .groups = test::sizes(1, 1, kDemand, "m").groups});
}

// Empty: the order is good.
std::string fault_of(const Sizes& wanted, const Job& job) {
  const auto groups = resized(job, wanted, kLimits);
  return groups ? "" : groups.error().message;
}

TEST(GroupSizes, AnOrderThatDoesNotFitSaysWhatIsShort) {
  LivingJob living = living_job({{.name = "a", .cores = 4, .memory_bytes = 1 << 30}});
  EXPECT_EQ(fault_of({{"decode", 4}}, living.job),
            "4 workers for decode do not fit: there is room for 3");
  living.tell(GroupsChanged{*resized(living.job, {{"decode", 3}}, kLimits)});
  EXPECT_EQ(fault_of({{"decode", 4}}, living.job),
            "4 workers for decode do not fit: node a comes nearest: it lacks 1 core");
}

TEST(GroupSizes, TheBoundOfAllGroupsTogetherHolds) {
  const LivingJob living = living_job();
  EXPECT_EQ(fault_of({{"prefill", 8}, {"decode", 2}}, living.job), "");
  EXPECT_EQ(fault_of({{"prefill", 8}, {"decode", 3}}, living.job),
            "all groups together can have at most 10 workers, not 11");
}

TEST(GroupSizes, AnUnknownGroupAndASizeOutOfBoundsAreRefusedByName) {
  const LivingJob living = living_job();
  EXPECT_EQ(fault_of({{"decoder", 2}}, living.job),
            "there is no group decoder: this job has prefill, decode");
  EXPECT_EQ(fault_of({{"decode", 9}}, living.job), "decode can have 1 to 8 workers, not 9");
}

TEST(GroupSizes, OtherGroupsKeepTheirs) {
  const LivingJob living = living_job();
  const std::vector<JobGroup> groups = *resized(living.job, {{"decode", 5}}, kLimits);
  EXPECT_EQ(groups[0].wanted, 1U);
  EXPECT_EQ(groups[1].wanted, 5U);
}

}  // namespace
}  // namespace pdjob::launcher
