#include "launcher/scaling/group_sizes.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "launcher/scaling/job_change.h"
#include "tests/unit/launcher/scaling/living_job.h"

namespace pdjob::launcher {
namespace {

const Demand kDemand{.cores = 1, .role = "decode", .model = "m"};

JobSetting setting(std::vector<Node> nodes = {}) {
  return {.nodes = std::move(nodes),
          .groups = {{.role = net::Role::kPrefill, .model = "m", .demand = kDemand},
                     {.role = net::Role::kDecode, .model = "m", .demand = kDemand}}};
}

std::vector<ProcessPlan> plan(uint32_t prefill, uint32_t decode) {
  std::vector<ProcessPlan> plan = {{.name = "router-0", .role = net::Role::kRouter}};
  for (uint32_t i = 0; i < prefill; ++i) {
    plan.push_back({"prefill-" + std::to_string(i), net::Role::kPrefill, "m", kDemand});
  }
  for (uint32_t i = 0; i < decode; ++i) {
    plan.push_back({"decode-" + std::to_string(i), net::Role::kDecode, "m", kDemand});
  }
  return plan;
}

GroupSizes sizes(uint32_t prefill, uint32_t decode) {
  return {{{.name = "prefill",
            .role = net::Role::kPrefill,
            .model = "m",
            .demand = kDemand,
            .wanted = prefill},
           {.name = "decode",
            .role = net::Role::kDecode,
            .model = "m",
            .demand = kDemand,
            .wanted = decode}},
          {.workers_per_group_max = 8, .workers_max = 10}};
}

std::string text_of(const std::vector<Event>& orders) {
  std::string text;
  for (const Event& order : orders) {
    text += text.empty() ? "" : ", ";
    if (const auto* added = std::get_if<ProcessAdded>(&order)) {
      text += "add " + added->plan.name;
    } else if (const auto* retired = std::get_if<RetireAsked>(&order)) {
      text += "retire " + retired->name;
    } else if (const auto* changed = std::get_if<RoleChangeAsked>(&order)) {
      text += changed->name + " to " + net::to_string(changed->role);
    }
  }
  return text;
}

std::string set(GroupSizes& sizes, const std::map<std::string, uint32_t>& wanted, const Job& job) {
  const Status done = sizes.set(wanted, job);
  return done ? "" : done.error().message;
}

TEST(GroupSizes, AddsWorkersUnderTheLowestFreeNames) {
  LivingJob living(plan(1, 2), setting());
  living.tell(RetireAsked{"decode-0"});
  GroupSizes group = sizes(1, 1);
  EXPECT_EQ(set(group, {{"decode", 3}}, living.job), "");
  EXPECT_EQ(text_of(group.orders(living.job, living.now)), "add decode-0, add decode-2");
}

TEST(GroupSizes, RetiresTheWorkerWithTheLeastWork) {
  LivingJob living(plan(1, 3), setting());
  living.load("decode-0", {.requests_running = 2});
  living.load("decode-2", {.requests_running = 1});
  GroupSizes group = sizes(1, 3);
  EXPECT_EQ(set(group, {{"decode", 2}}, living.job), "");
  EXPECT_EQ(text_of(group.orders(living.job, living.now)), "retire decode-1");
}

TEST(GroupSizes, RetiresADeadWorkerBeforeAnIdleOne) {
  LivingJob living(plan(1, 2), setting());
  living.tell(ProcessExited{living.job.find("decode-0")->incarnation, "signal 9"});
  ASSERT_EQ(living.job.find("decode-0")->state, ProcessState::kBackoff);
  GroupSizes group = sizes(1, 2);
  EXPECT_EQ(set(group, {{"decode", 1}}, living.job), "");
  EXPECT_EQ(text_of(group.orders(living.job, living.now)), "retire decode-0");
}

TEST(GroupSizes, AWorkerThatOneGroupCanSpareChangesItsRole) {
  LivingJob living(plan(1, 3), setting());
  GroupSizes group = sizes(1, 3);
  EXPECT_EQ(set(group, {{"prefill", 2}, {"decode", 1}}, living.job), "");
  EXPECT_EQ(text_of(group.orders(living.job, living.now)), "decode-2 to prefill, retire decode-1");
}

TEST(GroupSizes, AWorkerThatHasNoPlaceMakesWayForOneThatChangesItsRole) {
  LivingJob living(plan(2, 2), setting({{.name = "a", .cores = 4, .memory_bytes = 1 << 30}}));
  GroupSizes group = sizes(2, 2);
  const auto carry_out = [&] {
    const std::vector<Event> orders = group.orders(living.job, living.now);
    for (const Event& order : orders) {
      living.tell(order);
    }
    return text_of(orders);
  };
  group.want("decode", 3);
  EXPECT_EQ(carry_out(), "add decode-2");
  ASSERT_EQ(living.job.find("decode-2")->state, ProcessState::kWaiting);
  EXPECT_EQ(carry_out(), "");
  group.want("prefill", 1);
  EXPECT_EQ(carry_out(), "retire decode-2, prefill-1 to decode");
  EXPECT_EQ(carry_out(), "");
  EXPECT_EQ(group.progress(*group.find("decode"), living.job).serving, 3U);
}

TEST(GroupSizes, AWorkerThatLeavesIsNotAskedAgain) {
  LivingJob living(plan(1, 2), setting());
  living.drains = false;
  GroupSizes group = sizes(1, 1);
  living.tell(group.orders(living.job, living.now).front());
  EXPECT_EQ(text_of(group.orders(living.job, living.now)), "");
  EXPECT_EQ(group.progress(*group.find("decode"), living.job).missing,
            "finishing their requests: decode-1");
}

TEST(GroupSizes, ManyWorkersThatStartAreToldInOneShortText) {
  LivingJob living(plan(1, 1), setting());
  GroupSizes group = sizes(1, 8);
  living.registers = false;
  for (const Event& order : group.orders(living.job, living.now)) {
    living.tell(order);
  }
  EXPECT_EQ(group.progress(*group.find("decode"), living.job).missing,
            "starting: decode-1, decode-2, decode-3 and 4 more");
}

TEST(GroupSizes, AnOrderThatDoesNotFitSaysWhatIsShortAndChangesNothing) {
  LivingJob living(plan(1, 1), setting({{.name = "a", .cores = 4, .memory_bytes = 1 << 30}}));
  GroupSizes group = sizes(1, 1);
  EXPECT_EQ(set(group, {{"decode", 4}}, living.job),
            "4 workers for decode do not fit: there is room for 3");
  EXPECT_EQ(set(group, {{"decode", 3}}, living.job), "");
  for (Event& order : group.orders(living.job, living.now)) {
    living.tell(std::move(order));
  }
  EXPECT_EQ(set(group, {{"decode", 4}}, living.job),
            "4 workers for decode do not fit: node a comes nearest: it lacks 1 core");
  EXPECT_EQ(text_of(group.orders(living.job, living.now)), "");
}

TEST(GroupSizes, TheBoundOfAllGroupsTogetherHolds) {
  LivingJob living(plan(1, 1), setting());
  GroupSizes group = sizes(1, 1);
  EXPECT_EQ(set(group, {{"prefill", 8}, {"decode", 3}}, living.job),
            "all groups together can have at most 10 workers, not 11");
}

TEST(GroupSizes, AWaitingWorkerIsTroubleUntilANodeJoins) {
  LivingJob living(plan(1, 1), setting({{.name = "a", .cores = 2, .memory_bytes = 1 << 30}}));
  GroupSizes group = sizes(1, 1);
  group.want("decode", 2);
  for (Event& order : group.orders(living.job, living.now)) {
    living.tell(std::move(order));
  }
  EXPECT_EQ(group.progress(*group.find("decode"), living.job).trouble,
            "decode-1 waits for a node with room: node a comes nearest: it lacks 1 core");
  living.tell(NodeJoined{{.name = "b", .cores = 1, .memory_bytes = 1 << 30}});
  EXPECT_EQ(group.progress(*group.find("decode"), living.job).missing, "");
}

TEST(GroupSizes, AJobThatIsAdoptedKeepsItsSizesAndAlsoZero) {
  GroupSizes group = sizes(2, 2);
  group.keep(LivingJob(plan(1, 3), setting()).job);
  EXPECT_EQ(group.find("prefill")->wanted, 1U);
  EXPECT_EQ(group.find("decode")->wanted, 3U);
  group.keep(LivingJob(plan(0, 0), setting()).job);
  EXPECT_EQ(group.find("prefill")->wanted, 0U);
  EXPECT_EQ(group.find("decode")->wanted, 0U);
}

TEST(GroupSizes, AGroupThatAloneLostItsLastWorkerGetsOneAgain) {
  LivingJob living(plan(0, 1), setting());
  GroupSizes group = sizes(2, 2);
  group.keep(living.job);
  EXPECT_EQ(group.find("prefill")->wanted, 2U);
  EXPECT_EQ(group.find("decode")->wanted, 1U);
}

TEST(GroupSizes, AnySizesAreReachedAndThenNothingMoves) {
  Random random(7);
  LivingJob living(plan(1, 1), setting());
  GroupSizes group = sizes(1, 1);
  for (int round = 0; round < 200; ++round) {
    const auto prefill = static_cast<uint32_t>(1 + random.below(5));
    const auto decode = static_cast<uint32_t>(1 + random.below(5));
    ASSERT_EQ(set(group, {{"prefill", prefill}, {"decode", decode}}, living.job), "");
    for (Event& order : group.orders(living.job, living.now)) {
      living.tell(std::move(order));
    }
    ASSERT_EQ(text_of(group.orders(living.job, living.now)), "");
    ASSERT_EQ(members_of(*group.find("prefill"), living.job).size(), prefill);
    ASSERT_EQ(members_of(*group.find("decode"), living.job).size(), decode);
    for (const SizedGroup& each : group.groups()) {
      ASSERT_EQ(group.progress(each, living.job).missing, "");
    }
  }
}

class ChangedGroup : public ::testing::Test {
 public:
  // Asks for another spec of decode workers.
  void change() {
    JobSetting changed = setting();
    changed.groups[1].spec = "new";
    living.tell(GroupsChanged{changed.groups});
    group.change("decode", kDemand, "new");
  }
  // Whoever serves has served for long.
  std::string carry_out() {
    living.now += std::chrono::seconds(3);
    const std::vector<Event> orders = group.orders(living.job, living.now);
    std::string text = text_of(orders);
    for (const Event& order : orders) {
      if (const auto* replace = std::get_if<ReplaceAsked>(&order)) {
        text += "replace " + replace->name;
      }
      living.tell(order);
    }
    return text;
  }
  std::string spec(const std::string& name) const { return living.job.find(name)->spec; }

  LivingJob living{plan(1, 3), setting()};
  GroupSizes group = sizes(1, 3);
};

TEST_F(ChangedGroup, WorkersAreReplacedOneAfterTheOtherAndTheLeastBusyOneFirst) {
  EXPECT_EQ(carry_out(), "");
  change();
  living.load("decode-0", {.requests_running = 2});
  living.load("decode-2", {.requests_running = 1});
  EXPECT_EQ(carry_out(), "replace decode-1");
  EXPECT_TRUE(group.orders(living.job, living.now).empty()) << "it may still die";
  EXPECT_EQ(spec("decode-1"), "new");
  EXPECT_EQ(spec("decode-0"), "");
  EXPECT_EQ(carry_out(), "replace decode-2");
  EXPECT_EQ(carry_out(), "replace decode-0");
  EXPECT_EQ(carry_out(), "");
}

TEST_F(ChangedGroup, ACrashWhileSpecsDifferIsNoFaultOfARequest) {
  const auto cause_of = [&](const std::string& name) {
    living.tell(ProcessExited{living.job.find(name)->incarnation, "signal 6", true});
    return living.job.find(name)->loss;
  };
  EXPECT_EQ(cause_of("decode-0"), net::LossCause::kCrash);
  change();
  EXPECT_EQ(carry_out(), "");
  living.now += std::chrono::seconds(1);
  living.tell(TimePassed{});
  EXPECT_EQ(cause_of("decode-0"), net::LossCause::kOutside);
}

TEST_F(ChangedGroup, NoneIsReplacedWhileAnotherOneDoesNotServe) {
  change();
  living.tell(ProcessExited{living.job.find("decode-0")->incarnation, "signal 9"});
  ASSERT_EQ(living.job.find("decode-0")->state, ProcessState::kBackoff);
  EXPECT_EQ(carry_out(), "");
  living.now += std::chrono::seconds(1);
  living.tell(TimePassed{});
  EXPECT_EQ(spec("decode-0"), "new") << "whatever starts anew is up to date";
  EXPECT_EQ(carry_out(), "replace decode-2");
}

TEST_F(ChangedGroup, TheOnlyWorkerServesUntilASecondOneDoes) {
  group.want("decode", 1);
  while (!carry_out().empty()) {
  }
  ASSERT_EQ(members_of(*group.find("decode"), living.job).size(), 1U);
  change();
  living.registers = false;
  EXPECT_EQ(carry_out(), "add decode-1");
  EXPECT_EQ(carry_out(), "") << "it does not serve yet";
  living.registers = true;
  living.tell(MessageArrived{
      "decode-1",
      net::Registered{.worker = {.engine_id = living.job.find("decode-1")->engine_id, .port = 1}}});
  EXPECT_EQ(carry_out(), "retire decode-0");
  EXPECT_EQ(carry_out(), "");
  EXPECT_EQ(spec("decode-1"), "new");
}

TEST_F(ChangedGroup, TheOnlyWorkerThatAGroupMayHaveIsReplacedInItsPlace) {
  group = GroupSizes({{.name = "decode",
                       .role = net::Role::kDecode,
                       .model = "m",
                       .demand = kDemand,
                       .wanted = 1,
                       .most = 1}},
                     {.workers_per_group_max = 8, .workers_max = 10});
  EXPECT_EQ(carry_out(), "retire decode-2, retire decode-1");
  change();
  EXPECT_EQ(carry_out(), "replace decode-0");
  EXPECT_EQ(spec("decode-0"), "new");
}

TEST_F(ChangedGroup, AChangeIsDoneWhenAllServeForAWhileAndFailsWhenAWorkerDiesTwice) {
  change();
  JobChange good(JobChange::Kind::kForward);
  JobChange bad(JobChange::Kind::kForward);
  JobChange back(JobChange::Kind::kBack);
  living.registers = false;
  carry_out();
  const std::string name = "decode-2";
  for (int deaths = 0; deaths < 2; ++deaths) {
    bad.look(group, living.job, living.now);
    EXPECT_EQ(bad.state(), JobChange::State::kUnderWay);
    living.tell(ProcessExited{living.job.find(name)->incarnation, "signal 6"});
    bad.look(group, living.job, living.now);
    if (deaths == 0) {
      living.now += std::chrono::seconds(10);
      living.tell(TimePassed{});
    }
  }
  EXPECT_EQ(bad.state(), JobChange::State::kFailed);
  EXPECT_EQ(bad.why(), "decode-2 died 2 times: signal 6");
  back.look(group, living.job, living.now);
  EXPECT_EQ(back.state(), JobChange::State::kUnderWay) << "there is nothing to go back to";
  living.registers = true;
  living.now += std::chrono::seconds(10);
  living.tell(TimePassed{});
  do {
    good.look(group, living.job, living.now);
    EXPECT_EQ(good.state(), JobChange::State::kUnderWay);
  } while (!carry_out().empty());
  good.look(group, living.job, living.now);
  EXPECT_EQ(good.state(), JobChange::State::kDone);
}

}  // namespace
}  // namespace pdjob::launcher
