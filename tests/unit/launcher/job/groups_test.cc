// How a Job becomes what its groups say.
#include "launcher/job/groups.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "launcher/scaling/group_sizes.h"
#include "launcher/scaling/job_change.h"
#include "tests/support/job_sizes.h"
#include "tests/unit/launcher/job/living_job.h"

namespace pdjob::launcher {
namespace {

const Demand kDemand{.cores = 1, .role = "decode", .model = "m"};

std::vector<JobGroup> groups(uint32_t prefill, uint32_t decode) {
  return test::sizes(prefill, decode, kDemand, "m").groups;
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

JobSetting setting(uint32_t prefill, uint32_t decode, std::vector<Node> nodes = {}) {
  return {.nodes = std::move(nodes), .groups = groups(prefill, decode)};
}

std::string text_of(const std::vector<GroupStep>& steps) {
  std::string text;
  for (const GroupStep& step : steps) {
    text += text.empty() ? "" : ", ";
    text += step.kind == GroupStep::Kind::kAdd      ? "add " + step.process
            : step.kind == GroupStep::Kind::kRetire ? "retire " + step.process
                                                    : step.process + " to " + step.group->name;
  }
  return text;
}

// A job that has been told its sizes before.
class LivingGroups : public LivingJob {
 public:
  LivingGroups(uint32_t prefill, uint32_t decode, std::vector<Node> nodes = {})
      : LivingJob(plan(prefill, decode), setting(prefill, decode, std::move(nodes))) {}

  // Returns the first steps, which the job takes.
  std::string change(std::vector<JobGroup> groups) {
    const std::string text = text_of(next_steps(groups, job, now));
    tell(GroupsChanged{std::move(groups)});
    return text;
  }
  std::string want(uint32_t prefill, uint32_t decode) { return change(groups(prefill, decode)); }
  std::string next() const { return text_of(next_steps(job.groups(), job, now)); }
  GroupProgress decode() const { return progress_of(job.groups()[1], job); }
};

TEST(Groups, GetWorkersUnderTheLowestFreeNames) {
  LivingGroups living(1, 2);
  living.load("decode-1", {.requests_running = 1});
  EXPECT_EQ(living.want(1, 1), "retire decode-0");
  EXPECT_EQ(living.want(1, 3), "add decode-0, add decode-2");
}

TEST(Groups, LoseTheWorkerWithTheLeastWork) {
  LivingGroups living(1, 3);
  living.load("decode-0", {.requests_running = 2});
  living.load("decode-2", {.requests_running = 1});
  EXPECT_EQ(living.want(1, 2), "retire decode-1");
}

TEST(Groups, LoseADeadWorkerBeforeAnIdleOne) {
  LivingGroups living(1, 2);
  living.tell(ProcessExited{living.job.find("decode-0")->incarnation, "signal 9"});
  ASSERT_EQ(living.job.find("decode-0")->state, ProcessState::kBackoff);
  EXPECT_EQ(living.want(1, 1), "retire decode-0");
}

TEST(Groups, AWorkerThatOneCanSpareChangesItsRole) {
  LivingGroups living(1, 3);
  EXPECT_EQ(living.want(2, 1), "decode-2 to prefill, retire decode-1");
}

TEST(Groups, AWorkerThatHasNoPlaceMakesWayForOneThatChangesItsRole) {
  LivingGroups living(2, 2, {{.name = "a", .cores = 4, .memory_bytes = 1 << 30}});
  EXPECT_EQ(living.want(2, 3), "add decode-2");
  ASSERT_EQ(living.job.find("decode-2")->state, ProcessState::kWaiting);
  EXPECT_EQ(living.next(), "");
  EXPECT_EQ(living.want(1, 3), "retire decode-2, prefill-1 to decode");
  EXPECT_EQ(living.next(), "");
  EXPECT_EQ(living.decode().serving, 3U);
}

TEST(Groups, AWorkerThatLeavesIsNotAskedAgain) {
  LivingGroups living(1, 2);
  living.drains = false;
  EXPECT_EQ(living.want(1, 1), "retire decode-1");
  EXPECT_EQ(living.next(), "");
  EXPECT_EQ(living.decode().missing, "finishing their requests: decode-1");
}

TEST(Groups, ManyWorkersThatStartAreToldInOneShortText) {
  LivingGroups living(1, 1);
  living.registers = false;
  living.want(1, 8);
  EXPECT_EQ(living.decode().missing, "starting: decode-1, decode-2, decode-3 and 4 more");
}

TEST(Groups, AWaitingWorkerIsTroubleUntilANodeJoins) {
  LivingGroups living(1, 1, {{.name = "a", .cores = 2, .memory_bytes = 1 << 30}});
  living.want(1, 2);
  EXPECT_EQ(living.decode().trouble,
            "decode-1 waits for a node with room: node a comes nearest: it lacks 1 core");
  living.tell(NodeJoined{{.name = "b", .cores = 1, .memory_bytes = 1 << 30}});
  EXPECT_EQ(living.decode().missing, "");
}

TEST(Groups, AJobTakesItsSizesWhenItIsReady) {
  LivingJob living(plan(1, 2), setting(1, 1));
  ASSERT_EQ(living.job.state(), JobState::kReady);
  EXPECT_EQ(living.job.next_wakeup(), living.now);
  living.tell(TimePassed{});
  EXPECT_EQ(living.job.find("decode-1"), nullptr);
}

TEST(Groups, AnySizesAreReachedAndThenNothingMoves) {
  Random random(7);
  LivingGroups living(1, 1);
  for (int round = 0; round < 200; ++round) {
    const auto prefill = static_cast<uint32_t>(1 + random.below(5));
    const auto decode = static_cast<uint32_t>(1 + random.below(5));
    living.want(prefill, decode);
    ASSERT_EQ(living.next(), "");
    for (const JobGroup& each : living.job.groups()) {
      ASSERT_EQ(members_of(each, living.job).size(), each.wanted);
      ASSERT_EQ(progress_of(each, living.job).missing, "");
    }
  }
}

class ChangedGroup : public ::testing::Test {
 public:
  static std::vector<JobGroup> changed(uint32_t decode = 3) {
    std::vector<JobGroup> all = groups(1, decode);
    all[1].spec = "new";
    return all;
  }
  // Those that serve have then served for long.
  std::string pass() {
    living.now += std::chrono::seconds(3);
    living.beat_all();
    const std::string text = living.next();
    living.tell(TimePassed{});
    return text;
  }
  std::string spec(const std::string& name) const { return living.job.find(name)->spec; }

  LivingGroups living{1, 3};
};

TEST_F(ChangedGroup, WorkersAreReplacedOneAfterTheOtherAndTheLeastBusyOneFirst) {
  EXPECT_EQ(pass(), "");
  living.load("decode-0", {.requests_running = 2});
  living.load("decode-2", {.requests_running = 1});
  EXPECT_EQ(living.change(changed()), "decode-1 to decode");
  EXPECT_EQ(living.next(), "") << "it may still die";
  EXPECT_EQ(spec("decode-1"), "new");
  EXPECT_EQ(spec("decode-0"), "");
  EXPECT_EQ(pass(), "decode-2 to decode");
  EXPECT_EQ(pass(), "decode-0 to decode");
  EXPECT_EQ(pass(), "");
}

TEST_F(ChangedGroup, AWorkerWhoseGroupShrankWhileItDrainedToBeReplacedIsNotStartedAgain) {
  pass();
  living.drains = false;
  ASSERT_EQ(living.change(changed()), "decode-2 to decode");
  EXPECT_EQ(living.change(changed(0)), "retire decode-1, retire decode-0");
  std::vector<Effect> effects;
  living.job.step(ProcessExited{living.job.find("decode-2")->incarnation, "exit code 0"},
                  living.now, effects);
  EXPECT_EQ(living.job.find("decode-2"), nullptr);
  EXPECT_TRUE(std::ranges::none_of(
      effects, [](const Effect& effect) { return std::holds_alternative<Spawn>(effect); }));
}

TEST_F(ChangedGroup, ACrashWhileSpecsDifferIsNoFaultOfARequest) {
  const auto cause_of = [&](const std::string& name) {
    living.tell(ProcessExited{living.job.find(name)->incarnation, "signal 6", true});
    return living.job.find(name)->loss;
  };
  EXPECT_EQ(cause_of("decode-0"), net::LossCause::kCrash);
  EXPECT_EQ(living.change(changed()), "") << "one is away";
  living.now += std::chrono::seconds(1);
  living.tell(TimePassed{});
  EXPECT_EQ(cause_of("decode-0"), net::LossCause::kOutside);
}

TEST_F(ChangedGroup, NoneIsReplacedWhileAnotherOneDoesNotServe) {
  living.tell(ProcessExited{living.job.find("decode-0")->incarnation, "signal 9"});
  ASSERT_EQ(living.job.find("decode-0")->state, ProcessState::kBackoff);
  EXPECT_EQ(living.change(changed()), "");
  living.now += std::chrono::seconds(1);
  living.tell(TimePassed{});
  EXPECT_EQ(spec("decode-0"), "new") << "whatever starts anew is up to date";
  EXPECT_EQ(pass(), "decode-2 to decode");
}

TEST_F(ChangedGroup, TheOnlyWorkerServesUntilASecondOneDoes) {
  living.want(1, 1);
  ASSERT_EQ(members_of(living.job.groups()[1], living.job).size(), 1U);
  living.registers = false;
  EXPECT_EQ(living.change(changed(1)), "add decode-1");
  EXPECT_EQ(pass(), "") << "it does not serve yet";
  living.registers = true;
  living.tell(MessageArrived{
      "decode-1",
      net::Registered{.worker = {.engine_id = living.job.find("decode-1")->engine_id, .port = 1}}});
  EXPECT_EQ(pass(), "retire decode-0");
  EXPECT_EQ(pass(), "");
  EXPECT_EQ(spec("decode-1"), "new");
}

TEST_F(ChangedGroup, TheOnlyWorkerThatAGroupMayHaveIsReplacedInItsPlace) {
  std::vector<JobGroup> one = groups(1, 1);
  one[1].most = 1;
  EXPECT_EQ(living.change(one), "retire decode-2, retire decode-1");
  one[1].spec = "new";
  EXPECT_EQ(living.change(one), "decode-0 to decode");
  EXPECT_EQ(spec("decode-0"), "new");
}

TEST_F(ChangedGroup, AChangeIsDoneWhenAllServeForAWhileAndFailsWhenAWorkerDiesTwice) {
  JobChange good(JobChange::Kind::kForward);
  JobChange bad(JobChange::Kind::kForward);
  JobChange back(JobChange::Kind::kBack);
  living.registers = false;
  living.change(changed());
  const std::string name = "decode-2";
  for (int deaths = 0; deaths < 2; ++deaths) {
    bad.look(living.job, living.now);
    EXPECT_EQ(bad.state(), JobChange::State::kUnderWay);
    living.tell(ProcessExited{living.job.find(name)->incarnation, "signal 6"});
    bad.look(living.job, living.now);
    if (deaths == 0) {
      living.now += std::chrono::seconds(10);
      living.tell(TimePassed{});
    }
  }
  EXPECT_EQ(bad.state(), JobChange::State::kFailed);
  EXPECT_EQ(bad.why(), "decode-2 died 2 times: signal 6");
  back.look(living.job, living.now);
  EXPECT_EQ(back.state(), JobChange::State::kUnderWay) << "there is nothing to go back to";
  living.registers = true;
  living.now += std::chrono::seconds(10);
  living.tell(TimePassed{});
  do {
    good.look(living.job, living.now);
    EXPECT_EQ(good.state(), JobChange::State::kUnderWay);
  } while (!pass().empty());
  good.look(living.job, living.now);
  EXPECT_EQ(good.state(), JobChange::State::kDone);
}

class GroupWithASpare : public ::testing::Test {
 public:
  static std::vector<JobGroup> with_spares(uint32_t decode, uint32_t spares) {
    std::vector<JobGroup> all = groups(1, decode);
    all[1].spares = spares;
    return all;
  }
  static JobSetting started_with(uint32_t decode, uint32_t spares) {
    return {.groups = with_spares(decode, spares)};
  }
  std::string spares() const {
    std::string text;
    for (const Process& process : living.job.processes()) {
      if (process.stands_by()) {
        text += (text.empty() ? "" : " ") + process.name;
      }
    }
    return text;
  }
  void kill(const std::string& name) {
    living.tell(ProcessExited{living.job.find(name)->incarnation, "signal 9"});
  }
  void pass(int seconds) {
    living.now += std::chrono::seconds(seconds);
    living.beat_all();
    living.tell(TimePassed{});
  }
  GroupProgress decode() const { return progress_of(living.job.groups()[1], living.job); }

  LivingJob living{plan(1, 3), started_with(2, 1)};
};

TEST_F(GroupWithASpare, HasSoManyWorkersMoreThanServe) {
  EXPECT_EQ(spares(), "decode-2");
  EXPECT_EQ(decode().serving, 2U);
  EXPECT_EQ(decode().spares, 1U);
  EXPECT_EQ(decode().missing, "");
  EXPECT_EQ(text_of(next_steps(living.job.groups(), living.job, living.now)), "");
}

TEST_F(GroupWithASpare, ASpareServesAtOnceWhenAWorkerDiesAndTheDeadOneComesBackAsTheSpare) {
  kill("decode-0");
  EXPECT_EQ(spares(), "");
  EXPECT_EQ(decode().serving, 2U);
  EXPECT_EQ(decode().missing, "backoff: decode-0");
  pass(1);
  EXPECT_EQ(spares(), "decode-0");
  EXPECT_EQ(decode().missing, "");
}

TEST_F(GroupWithASpare, ASilentWorkerIsReplacedByTheSpareAndIsTheSpareWhenItSpeaksAgain) {
  for (int beats = 0; beats < 100 && !living.job.find("decode-0")->suspected; ++beats) {
    living.now += std::chrono::milliseconds(100);
    for (const char* const name : {"router-0", "prefill-0", "decode-1", "decode-2"}) {
      living.load(name, {});
    }
    living.tell(TimePassed{});
  }
  ASSERT_TRUE(living.job.find("decode-0")->suspected);
  EXPECT_EQ(spares(), "");
  EXPECT_FALSE(living.job.find("decode-2")->spare);
  living.load("decode-0", {});
  EXPECT_EQ(spares(), "decode-0");
}

TEST_F(GroupWithASpare, MoreDeathsThanSparesAreWaitedForAndThoseThatComeBackServe) {
  kill("decode-0");
  kill("decode-1");
  EXPECT_EQ(decode().serving, 1U);
  EXPECT_EQ(spares(), "");
  pass(1);
  EXPECT_EQ(decode().serving, 2U);
  EXPECT_EQ(decode().spares, 1U);
}

TEST_F(GroupWithASpare, AWorkerThatServesLeavesASmallerGroupAndTheSpareStays) {
  living.tell(GroupsChanged{with_spares(1, 1)});
  EXPECT_EQ(decode().serving, 1U);
  EXPECT_EQ(spares(), "decode-2");
}

TEST_F(GroupWithASpare, TheSpareServesInALargerGroupAndTheNewWorkerIsTheSpare) {
  living.tell(GroupsChanged{with_spares(3, 1)});
  EXPECT_EQ(decode().serving, 3U);
  EXPECT_EQ(spares(), "decode-3");
}

TEST_F(GroupWithASpare, ASpareTooManyLeavesAndNoneIsLeftWhereNoneIsWanted) {
  living.tell(GroupsChanged{with_spares(2, 2)});
  EXPECT_EQ(spares(), "decode-2 decode-3");
  living.tell(GroupsChanged{with_spares(2, 1)});
  EXPECT_EQ(spares(), "decode-2");
  living.tell(GroupsChanged{with_spares(2, 0)});
  EXPECT_EQ(spares(), "");
  EXPECT_EQ(decode().serving, 2U);
  EXPECT_EQ(decode().missing, "");
}

TEST_F(GroupWithASpare, IsReplacedBeforeThoseThatServeAndAllTheTimeEnoughServe) {
  std::vector<JobGroup> all = with_spares(2, 1);
  all[1].spec = "new";
  pass(4);
  living.tell(GroupsChanged{all});
  EXPECT_EQ(living.job.find("decode-2")->spec, "new");
  for (int round = 0; round < 8; ++round) {
    EXPECT_GE(decode().serving, 2U);
    pass(4);
  }
  EXPECT_TRUE(up_to_date(all, living.job));
  EXPECT_EQ(decode().spares, 1U);
}

TEST_F(GroupWithASpare, AnySizesAndDeathsLeaveAsManyThatServeAsThereCanBe) {
  Random random(11);
  for (int round = 0; round < 400; ++round) {
    if (random.below(3) == 0) {
      living.tell(GroupsChanged{with_spares(static_cast<uint32_t>(1 + random.below(4)),
                                            static_cast<uint32_t>(random.below(3)))});
    } else {
      const std::vector<const Process*> members = members_of(living.job.groups()[1], living.job);
      const Process& one = *members[random.below(members.size())];
      if (one.alive()) {
        kill(one.name);
      }
    }
    const JobGroup& group = living.job.groups()[1];
    uint32_t able = 0;
    for (const Process* each : members_of(group, living.job)) {
      able += each->state == ProcessState::kReady ? 1U : 0U;
    }
    ASSERT_GE(decode().serving, std::min(able, group.wanted));
    ASSERT_LE(decode().spares, group.spares);
    pass(random.below(2) == 0 ? 0 : 10);
  }
}

}  // namespace
}  // namespace pdjob::launcher
