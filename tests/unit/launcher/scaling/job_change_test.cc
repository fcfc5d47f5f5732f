#include "launcher/scaling/job_change.h"

#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/launcher/scaling/living_job.h"

namespace pdjob::launcher {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

JobSetting setting() {
  return {.groups = {{.role = net::Role::kPrefill, .model = "m", .spec = "old"},
                     {.role = net::Role::kDecode, .model = "m", .spec = "old"}}};
}

// A prefill and a decode worker, whose file changes. Probes succeed only while `proves`.
struct ChangedModel : testing::Test {
  ChangedModel() {
    living.registers = false;
    living.tell(GroupsChanged{{{.role = net::Role::kPrefill, .model = "m", .spec = "new"},
                               {.role = net::Role::kDecode, .model = "m", .spec = "new"}}});
    living.proves = false;
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
  static SizedGroup group(const std::string& name, net::Role role) {
    return {.name = name, .role = role, .model = "m", .wanted = 1, .spec = "new"};
  }

  LivingJob living{{{.name = "router-0", .role = net::Role::kRouter, .spec = "router old"},
                    {.name = "prefill-0", .role = net::Role::kPrefill, .model = "m", .spec = "old"},
                    {.name = "decode-0", .role = net::Role::kDecode, .model = "m", .spec = "old"}},
                   setting()};
  GroupSizes sizes{{group("prefill", net::Role::kPrefill), group("decode", net::Role::kDecode)},
                   {.workers_per_group_max = 8, .workers_max = 10}};
  JobChange change{JobChange::Kind::kForward, "router new"};
};

TEST_F(ChangedModel, TheFirstNewWorkersOfBothRolesProveEachOther) {
  living.tell(ReplaceAsked{.name = "prefill-0"});
  join("prefill-0", "new", "b");
  EXPECT_EQ(state("prefill-0"), ProcessState::kRegistered) << "with nobody to be probed with";
  living.proves = true;
  living.tell(ReplaceAsked{.name = "decode-0"});
  join("decode-0", "new", "b");
  EXPECT_EQ(state("prefill-0"), ProcessState::kReady);
  EXPECT_EQ(state("decode-0"), ProcessState::kReady);
}

TEST_F(ChangedModel, AnotherFileIsRefusedOnlyBesideWorkersOfTheSameSpec) {
  living.tell(ReplaceAsked{.name = "prefill-0"});
  join("prefill-0", "new", "b");
  EXPECT_EQ(state("prefill-0"), ProcessState::kRegistered);
  living.tell(ReplaceAsked{.name = "decode-0"});
  join("decode-0", "newer", "c");
  EXPECT_TRUE(living.job.find("decode-0")->last_exit.starts_with("the nodes have different files"))
      << living.job.find("decode-0")->last_exit;
}

TEST_F(ChangedModel, TwoThatCannotProveEachOtherForLongAreAFault) {
  for (const std::string name : {"prefill-0", "decode-0"}) {
    living.tell(ReplaceAsked{.name = name});
    join(name, "new");
  }
  change.look(sizes, living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kUnderWay);
  EXPECT_EQ(change.due(), living.now + minutes(2));
  living.now += minutes(2);
  change.look(sizes, living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kFailed);
  EXPECT_EQ(change.why(), "prefill-0 is not ready: no probe goes through it");
}

TEST_F(ChangedModel, OneThatWaitsForItsPartnerIsNoFault) {
  living.tell(ReplaceAsked{.name = "prefill-0"});
  join("prefill-0", "new");
  living.now += minutes(30);
  change.look(sizes, living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kUnderWay);
}

TEST_F(ChangedModel, AWorkerThatNobodyCanProveAnyMoreIsReplaced) {
  living.tell(ReplaceAsked{.name = "prefill-0"});
  join("prefill-0", "new");
  sizes.change("prefill", {}, "old");
  sizes.change("decode", {}, "old");
  const std::vector<Event> orders = sizes.orders(living.job, living.now);
  ASSERT_EQ(orders.size(), 1U);
  ASSERT_TRUE(std::holds_alternative<ReplaceAsked>(orders.front()));
  EXPECT_EQ(std::get<ReplaceAsked>(orders.front()).name, "prefill-0");
}

TEST_F(ChangedModel, RoutersHaveConfirmedWhatTheyShouldDoBeforeItIsDone) {
  living.proves = true;
  for (const std::string name : {"prefill-0", "decode-0"}) {
    living.tell(ReplaceAsked{.name = name});
    join(name, "new");
  }
  living.now += seconds(10);
  change.look(sizes, living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kUnderWay);
  ASSERT_EQ(change.outdated_routers(living.job).size(), 1U);
  const std::string engine_id = living.job.find("router-0")->engine_id;
  living.tell(MessageArrived{
      "router-0", net::SpecApplied{.engine_id = "an earlier one", .digest = "router new"}});
  EXPECT_EQ(change.outdated_routers(living.job).size(), 1U);
  living.tell(
      MessageArrived{"router-0", net::SpecApplied{.engine_id = engine_id, .digest = "router new"}});
  change.look(sizes, living.job, living.now);
  EXPECT_EQ(change.state(), JobChange::State::kDone);
}

}  // namespace
}  // namespace pdjob::launcher
