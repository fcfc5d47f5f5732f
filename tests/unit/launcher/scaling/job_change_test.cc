#include "launcher/scaling/job_change.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/job_sizes.h"
#include "tests/unit/launcher/job/living_job.h"

namespace pdjob::launcher {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

std::vector<JobGroup> groups(const std::string& spec) {
  std::vector<JobGroup> groups = test::sizes(1, 1, {}, "m").groups;
  for (JobGroup& group : groups) {
    group.spec = spec;
    group.most = 1;  // So the only worker is replaced in its place.
  }
  return groups;
}

// A prefill and a decode worker, whose file changes: both start again, and register when they join.
// Probes succeed only while `proves`.
struct ChangedModel : testing::Test {
  ChangedModel() {
    living.registers = false;
    living.proves = false;
    living.tell(GroupsChanged{groups("new")});
  }
  void join(const std::string& name, const std::string& fingerprint,
            const std::string& digest = "") {
    living.tell(MessageArrived{
        name, net::Registered{.worker = {.engine_id = living.job.find(name)->engine_id,
                                         .port = 1,
                                         .model_digest = digest,
                                         .fingerprint = fingerprint}}});
  }
  void pass(Duration time) {
    living.now += time;
    living.tell(TimePassed{});
  }
  ProcessState state(const std::string& name) const { return living.job.find(name)->state; }

  LivingJob living{{{.name = "router-0", .role = net::Role::kRouter, .spec = "router old"},
                    {.name = "prefill-0", .role = net::Role::kPrefill, .model = "m", .spec = "old"},
                    {.name = "decode-0", .role = net::Role::kDecode, .model = "m", .spec = "old"}},
                   {.groups = groups("old")}};
  JobChange change{JobChange::Kind::kForward, "router new"};
};

TEST_F(ChangedModel, TheFirstNewWorkersOfBothRolesProveEachOther) {
  join("prefill-0", "new", "b");
  EXPECT_EQ(state("prefill-0"), ProcessState::kRegistered) << "with nobody to be probed with";
  living.proves = true;
  join("decode-0", "new", "b");
  EXPECT_EQ(state("prefill-0"), ProcessState::kReady);
  EXPECT_EQ(state("decode-0"), ProcessState::kReady);
}

TEST_F(ChangedModel, AnotherFileIsRefusedOnlyBesideWorkersOfTheSameSpec) {
  join("prefill-0", "new", "b");
  EXPECT_EQ(state("prefill-0"), ProcessState::kRegistered);
  join("decode-0", "newer", "c");
  EXPECT_TRUE(living.job.find("decode-0")->last_exit.starts_with("the nodes have different files"))
      << living.job.find("decode-0")->last_exit;
}

TEST_F(ChangedModel, TwoThatCannotProveEachOtherForLongAreAFault) {
  for (const std::string name : {"prefill-0", "decode-0"}) {
    join(name, "new");
  }
  change.look(living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kUnderWay);
  EXPECT_EQ(change.due(), living.now + minutes(2));
  living.now += minutes(2);
  change.look(living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kFailed);
  EXPECT_EQ(change.why(), "prefill-0 is not ready: no probe goes through it");
}

TEST_F(ChangedModel, OneThatWaitsForItsPartnerIsNoFault) {
  join("prefill-0", "new");
  living.now += minutes(30);
  change.look(living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kUnderWay);
}

TEST_F(ChangedModel, AWorkerThatNobodyCanProveAnyMoreIsReplaced) {
  join("prefill-0", "new");
  const std::vector<JobGroup> before = groups("old");
  const std::vector<GroupStep> steps = next_steps(before, living.job, living.now);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].process, "prefill-0");
  EXPECT_EQ(steps[0].kind, GroupStep::Kind::kStartAgain);
}

TEST_F(ChangedModel, RoutersHaveConfirmedWhatTheyShouldDoBeforeItIsDone) {
  living.proves = true;
  for (const std::string name : {"prefill-0", "decode-0"}) {
    join(name, "new");
  }
  living.now += seconds(10);
  change.look(living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kUnderWay);
  ASSERT_EQ(change.outdated_routers(living.job).size(), 1U);
  const std::string engine_id = living.job.find("router-0")->engine_id;
  living.tell(MessageArrived{
      "router-0", net::SpecApplied{.engine_id = "an earlier one", .digest = "router new"}});
  EXPECT_EQ(change.outdated_routers(living.job).size(), 1U);
  living.tell(
      MessageArrived{"router-0", net::SpecApplied{.engine_id = engine_id, .digest = "router new"}});
  change.look(living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kDone);
}

}  // namespace
}  // namespace pdjob::launcher
