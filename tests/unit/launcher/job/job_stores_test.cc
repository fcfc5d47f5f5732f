// The stores of a job: one on each node with workers. They save time, so nothing waits for them.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "launcher/job/job.h"
#include "net/control/member_list.h"
#include "tests/support/node_says.h"

namespace pdjob::launcher {
namespace {

using std::chrono::seconds;

const Demand kWorker{.cores = 1, .role = "both", .model = "m"};
const Demand kStore{.memory_bytes = 1000, .role = "store"};

Node node(const std::string& name, uint64_t memory_bytes = 1500) {
  return {.name = name, .cores = 1, .memory_bytes = memory_bytes};
}

// Nodes "a" and "b" have room for a worker and a store each.
class JobStores : public testing::Test {
 protected:
  JobStores() {
    setting_.nodes = {node("a"), node("b")};
    setting_.groups = {{.name = "decode",
                        .role = net::Role::kBoth,
                        .model = "m",
                        .demand = kWorker,
                        .workers_min = 1,
                        .wanted = 1,
                        .uses_store = true}};
    setting_.store = ProcessPlan{.role = net::Role::kStore, .demand = kStore, .spec = "s"};
    setting_.launcher = 1;
    begin();
  }

  void begin() {
    std::vector<ProcessPlan> processes = {
        {.name = "router-0", .role = net::Role::kRouter, .place = {.node = "a"}},
        {.name = "store-0",
         .role = net::Role::kStore,
         .demand = kStore,
         .place = {.node = "a"},
         .spec = "s"},
        {.name = "decode-0",
         .role = net::Role::kBoth,
         .model = "m",
         .demand = kWorker,
         .place = {.node = "a"}}};
    if (master_) {
      processes.push_back(
          {.name = "store-master", .role = net::Role::kStore, .place = {.node = "b"}, .spec = "s"});
    }
    job_ = std::make_unique<Job>(std::move(processes),
                                 JobTiming{.restart = {.backoff_max = seconds(1), .attempts = 3}},
                                 "n", setting_);
  }

  // The router confirms each membership at once.
  std::vector<Effect> tell(const Event& event) {
    std::vector<Effect> effects;
    job_->step(test::as_its_node_says(event, *job_), now_, effects);
    for (size_t i = 0; i < effects.size(); ++i) {
      const auto* const send = std::get_if<Send>(&effects[i]);
      const auto* const told =
          send == nullptr ? nullptr : std::get_if<net::Membership>(&send->message);
      if (told != nullptr && members_.take(*told)) {
        const net::MembershipApplied applied{at("router-0").engine_id, told->version};
        job_->step(MessageArrived{"router-0", applied}, now_, effects);
      }
    }
    all_.insert(all_.end(), effects.begin(), effects.end());
    return effects;
  }
  void register_process(const std::string& name) {
    tell(MessageArrived{name, net::Registered{.worker = {.name = name,
                                                         .engine_id = at(name).engine_id,
                                                         .kv_address = "address of " + name}}});
  }
  void answer_probes() {
    for (uint64_t probe = 1; probe < 8; ++probe) {
      tell(ProbeSucceeded{probe, 4096});
    }
  }
  void make_ready() {
    tell(Started{});
    register_process("router-0");
    register_process("store-0");
    register_process("decode-0");
    answer_probes();
    ASSERT_EQ(job_->state(), JobState::kReady);
    all_.clear();
  }
  void crash(const std::string& name) {
    tell(ProcessExited{at(name).incarnation, "signal 6 (Aborted)", true, ""});
  }
  void pass(Duration duration) {
    now_ += duration;
    tell(TimePassed{});
  }
  const Process& at(const std::string& name) const { return *job_->find(name); }
  std::vector<std::string> stores_told() const {
    std::vector<std::string> ids;
    for (const net::WorkerEntry& store : members_.stores()) {
      ids.push_back(store.engine_id);
    }
    return ids;
  }
  bool drains(const std::string& name) const {
    return std::ranges::any_of(all_, [&](const Effect& effect) {
      const auto* const send = std::get_if<Send>(&effect);
      return send != nullptr && send->peer == name &&
             std::holds_alternative<net::Drain>(send->message);
    });
  }

  JobSetting setting_;
  bool master_ = false;  // The job has one, on node "b".
  std::unique_ptr<Job> job_;
  net::MemberList members_;
  Instant now_{seconds(1000)};
  std::vector<Effect> all_;
};

using Ids = std::vector<std::string>;

TEST_F(JobStores, AJobIsReadyBeforeItsStoreIs) {
  tell(Started{});
  register_process("router-0");
  register_process("decode-0");
  EXPECT_EQ(job_->waiting_for().find("store"), std::string::npos) << job_->waiting_for();
  answer_probes();
  EXPECT_EQ(job_->state(), JobState::kReady);
  EXPECT_EQ(at("store-0").state, ProcessState::kStarting);
}

TEST_F(JobStores, RoutersKnowAStoreOnceItHasRegistered) {
  make_ready();
  EXPECT_EQ(at("store-0").state, ProcessState::kReady);
  ASSERT_EQ(members_.stores().size(), 1U);
  EXPECT_EQ(members_.stores()[0].role, net::Role::kStore);
  EXPECT_EQ(members_.stores()[0].kv_address, "address of store-0");
  EXPECT_EQ(members_.workers().size(), 1U) << "it is no worker";
}

TEST_F(JobStores, AStoreThatDiesLeavesAtOnceAndComesBack) {
  make_ready();
  crash("store-0");
  EXPECT_TRUE(stores_told().empty());
  EXPECT_EQ(job_->state(), JobState::kReady);
  pass(seconds(10));
  EXPECT_EQ(at("store-0").state, ProcessState::kStarting);
  EXPECT_EQ(at("store-0").place.node, "a");
  register_process("store-0");
  EXPECT_EQ(stores_told(), Ids{"store-0.n.4"});
  EXPECT_EQ(at("decode-0").restarts, 0U);
}

TEST_F(JobStores, AStoreThatNeverStartsFailsNoJob) {
  tell(Started{});
  for (int death = 0; death < 10; ++death) {
    crash("store-0");
    EXPECT_EQ(at("store-0").state, ProcessState::kBackoff);
    pass(seconds(2));
    ASSERT_EQ(job_->state(), JobState::kStarting);
    ASSERT_EQ(at("store-0").state, ProcessState::kStarting);
  }
  register_process("router-0");
  register_process("decode-0");
  answer_probes();
  EXPECT_EQ(job_->state(), JobState::kReady);
}

TEST_F(JobStores, AStoreEndsAfterTheWorkers) {
  make_ready();
  tell(StopAsked{0});
  tell(ProcessExited{at("router-0").incarnation, "exit code 0", false, ""});
  EXPECT_TRUE(drains("decode-0"));
  EXPECT_FALSE(drains("store-0"));
  tell(ProcessExited{at("decode-0").incarnation, "exit code 0", false, ""});
  EXPECT_TRUE(drains("store-0"));
  tell(ProcessExited{at("store-0").incarnation, "exit code 0", false, ""});
  EXPECT_EQ(job_->state(), JobState::kDone);
}

TEST_F(JobStores, AStoreEndsWithItsNode) {
  make_ready();
  std::vector<JobGroup> groups = setting_.groups;
  groups.front().wanted = 2;
  tell(GroupsChanged{groups});
  register_process("store-1");
  EXPECT_EQ(stores_told(), (Ids{"store-0.n.2", at("store-1").engine_id}));
  tell(NodeLost{"b", "no answer"});
  EXPECT_EQ(job_->find("store-1"), nullptr);
  EXPECT_EQ(stores_told(), Ids{"store-0.n.2"});
  EXPECT_EQ(job_->state(), JobState::kReady);
}

TEST_F(JobStores, AStoreThatWaitsToStartAgainEndsWithItsNode) {
  make_ready();
  crash("store-0");
  tell(NodeLost{"a", "no answer"});
  EXPECT_EQ(job_->find("store-0"), nullptr);
}

TEST_F(JobStores, ANodeThatGetsAWorkerGetsAStore) {
  make_ready();
  std::vector<JobGroup> groups = setting_.groups;
  groups.front().wanted = 2;
  tell(GroupsChanged{groups});
  ASSERT_NE(job_->find("decode-1"), nullptr);
  EXPECT_EQ(at("decode-1").place.node, "b");
  ASSERT_NE(job_->find("store-1"), nullptr);
  EXPECT_EQ(at("store-1").place.node, "b");
  EXPECT_EQ(at("store-1").spec, "s");
  EXPECT_EQ(at("store-1").state, ProcessState::kStarting);
  EXPECT_EQ(job_->find("store-2"), nullptr);
}

TEST_F(JobStores, TheMasterOfAllStoresIsNoStoreOfItsNode) {
  master_ = true;
  setting_.groups.front().wanted = 2;
  begin();
  make_ready();
  ASSERT_NE(job_->find("store-master"), nullptr);
  EXPECT_EQ(at("store-master").place.node, "b");
  ASSERT_NE(job_->find("store-1"), nullptr);
  EXPECT_EQ(at("store-1").place.node, "b");
}

TEST_F(JobStores, ANodeWithoutMemoryForAStoreGetsNone) {
  setting_.nodes = {node("a"), node("b", 900)};
  setting_.groups.front().wanted = 2;
  begin();
  make_ready();
  ASSERT_NE(job_->find("decode-1"), nullptr);
  EXPECT_EQ(at("decode-1").place.node, "b");
  EXPECT_EQ(job_->find("store-1"), nullptr);
}

TEST_F(JobStores, AWorkerOfAnotherMakeBringsNoStore) {
  setting_.groups.front().uses_store = false;
  setting_.groups.front().wanted = 2;
  begin();
  make_ready();
  ASSERT_NE(job_->find("decode-1"), nullptr);
  EXPECT_EQ(job_->find("store-1"), nullptr);
}

TEST_F(JobStores, TheNextLauncherKeepsAStore) {
  make_ready();
  setting_.record = job_->record();
  setting_.launcher = 2;
  begin();
  const Incarnation before = at("store-0").incarnation;
  tell(Started{});
  std::vector<RunningProcess> running;
  for (const Process& process : job_->processes()) {
    running.push_back({.incarnation = process.incarnation, .pid = 7});
  }
  tell(NodeJoined{.node = node("a"), .running = running});
  tell(NodeJoined{.node = node("b")});
  EXPECT_FALSE(job_->adopting());
  EXPECT_EQ(at("store-0").state, ProcessState::kReady);
  EXPECT_EQ(at("store-0").incarnation, before);
  EXPECT_EQ(at("store-0").place.node, "a");
}

}  // namespace
}  // namespace pdjob::launcher
