#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"
#include "launcher/job/job.h"
#include "net/control/member_list.h"
#include "tests/support/job_sizes.h"
#include "tests/support/node_says.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::sizes;

const JobTiming kTiming{.start_timeout = seconds(60),
                        .stop_timeout = seconds(30),
                        .heartbeat_timeout = seconds(3),
                        .hang_timeout = seconds(15),
                        .adopt_timeout = seconds(10),
                        .restart = {.backoff_min = milliseconds(250)}};

const Demand kDemand{.cores = 1};
const Node kA{.name = "a", .cores = 4};
const Node kB{.name = "b", .cores = 4};

const std::vector<ProcessPlan> kPlan = {{"router-0", net::Role::kRouter, "", {}, {.node = "a"}},
                                        {"prefill-0", net::Role::kPrefill, "", {.cores = 1}, {"a"}},
                                        {"decode-0", net::Role::kDecode, "", {.cores = 1}, {"b"}}};

// A job on two nodes, and its launchers one after the other.
class JobAdoption : public testing::Test {
 protected:
  JobAdoption()
      : job_(std::make_unique<Job>(kPlan, kTiming, "n",
                                   JobSetting{.nodes = {kA, kB}, .launcher = 1})) {}

  std::vector<Effect> tell(const Event& event) {
    std::vector<Effect> effects;
    job_->step(test::as_its_node_says(event, *job_), now_, effects);
    all_.insert(all_.end(), effects.begin(), effects.end());
    return effects;
  }
  std::vector<Effect> say(const std::string& name, net::Message message) {
    return tell(MessageArrived{name, std::move(message)});
  }
  std::vector<Effect> pass(Duration duration) {
    now_ += duration;
    return tell(TimePassed{});
  }
  const Process& at(const std::string& name) const { return *job_->find(name); }
  void register_process(const std::string& name) {
    say(name, net::Registered{.worker = {.name = name, .engine_id = at(name).engine_id}});
  }
  std::vector<Effect> beat(const std::string& name) {
    return say(name, net::HeartbeatSent{.name = name, .engine_id = at(name).engine_id});
  }
  // Each router confirms what it was told, and is told, until nothing is new.
  void confirm() {
    while (!all_.empty()) {
      for (const Send& send : of<Send>(std::exchange(all_, {}))) {
        if (const auto* told = std::get_if<net::Membership>(&send.message)) {
          say(send.peer, net::MembershipApplied{at(send.peer).engine_id, told->version});
        }
      }
    }
  }
  void make_ready() {
    tell(Started{});
    for (const char* name : {"router-0", "prefill-0", "decode-0"}) {
      register_process(name);
      confirm();
    }
    tell(ProbeSucceeded{1, 4096});
    confirm();
    ASSERT_EQ(job_->state(), JobState::kReady);
  }
  // The launcher dies, and another one begins.
  std::vector<Effect> next_launcher() { return next_launcher(job_->record()); }
  std::vector<Effect> next_launcher(const JobRecord& record) {
    std::string bytes;
    net::WireWriter writer(bytes);
    write_fields(writer, record);
    net::WireReader reader(std::as_bytes(std::span(bytes.data(), bytes.size())));
    JobRecord read;
    read_fields(reader, read);
    EXPECT_TRUE(!reader.failed() && reader.at_end());
    EXPECT_EQ(read, record) << "it survives the disk";
    now_ += seconds(1000);  // Its clock is its own.
    job_ = std::make_unique<Job>(kPlan, kTiming, "n",
                                 JobSetting{.launcher = ++launcher_, .record = read});
    all_.clear();
    return tell(Started{});
  }
  std::vector<RunningProcess> running(const std::vector<std::string>& names) const {
    std::vector<RunningProcess> found;
    for (const std::string& name : names) {
      found.push_back({at(name).incarnation, 77});
    }
    return found;
  }

  template <class T>
  static std::vector<T> of(const std::vector<Effect>& effects) {
    std::vector<T> found;
    for (const Effect& effect : effects) {
      if (const T* one = std::get_if<T>(&effect)) {
        found.push_back(*one);
      }
    }
    return found;
  }
  template <class T>
  static std::vector<T> sent(const std::vector<Effect>& effects) {
    std::vector<T> found;
    for (const Send& send : of<Send>(effects)) {
      if (const T* one = std::get_if<T>(&send.message)) {
        found.push_back(*one);
      }
    }
    return found;
  }

  Instant now_{seconds(1000)};
  uint64_t launcher_ = 1;
  std::unique_ptr<Job> job_;
  std::vector<Effect> all_;
};

TEST_F(JobAdoption, WhatRunsIsAMemberAtOnceAndNothingStarts) {
  make_ready();
  const auto begun = next_launcher();
  EXPECT_TRUE(of<Spawn>(begun).empty());
  const auto told = sent<net::Membership>(begun);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_GT(told[0].version, uint64_t{2} << 32U) << "more than any that an earlier launcher sent";
  ASSERT_EQ(told[0].workers.size(), 2U);
  EXPECT_EQ(told[0].workers[0].standing, net::Standing::kServing);
  EXPECT_TRUE(
      of<ReportReady>(tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}})).empty());
  const auto done = tell(NodeJoined{kB, running({"decode-0"}), {}});
  ASSERT_EQ(of<ReportAdopted>(done).size(), 1U);
  EXPECT_EQ(of<ReportAdopted>(done)[0].adopted, 3U);
  EXPECT_EQ(of<ReportReady>(done).size(), 1U);
  EXPECT_EQ(at("decode-0").pid, 77);
  EXPECT_EQ(at("decode-0").restarts, 0U);
}

TEST_F(JobAdoption, WhatEndedMeanwhileIsReplacedWithANewIncarnation) {
  make_ready();
  const Incarnation old = at("decode-0").incarnation;
  next_launcher();
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  tell(NodeJoined{kB, {}, {}});
  EXPECT_EQ(at("decode-0").state, ProcessState::kBackoff);
  const auto spawned = of<Spawn>(pass(milliseconds(250)));
  ASSERT_EQ(spawned.size(), 1U);
  EXPECT_EQ(spawned[0].name, "decode-0");
  EXPECT_GT(spawned[0].incarnation, old);
  EXPECT_EQ(at("decode-0").restarts, 1U);
}

TEST_F(JobAdoption, ANodeThatWasBadIsAvoidedByTheNextLauncher) {
  make_ready();
  for (int i = 0; i < 4; ++i) {
    tell(NodeBlamed{"b"});
    now_ += seconds(2);
  }
  next_launcher();
  EXPECT_EQ(job_->trust().levels(now_), (TrustLevels{{"b", 1}}));
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  tell(NodeJoined{kB, {}, {}});
  const auto spawned = of<Spawn>(pass(milliseconds(250)));
  ASSERT_EQ(spawned.size(), 1U);
  EXPECT_EQ(spawned[0].name, "decode-0");
  EXPECT_EQ(spawned[0].place.node, "a");
}

TEST_F(JobAdoption, WhatTheRecordDoesNotHaveIsKilledAndItsNumberIsNotUsedAgain) {
  make_ready();
  next_launcher();
  std::vector<RunningProcess> found = running({"router-0", "prefill-0"});
  found.push_back({Incarnation{50}, 9});
  found.push_back({at("decode-0").incarnation, 9});  // It runs on the other node.
  const auto killed = of<SendSignal>(tell(NodeJoined{kA, found, {}}));
  ASSERT_EQ(killed.size(), 2U);
  EXPECT_EQ(killed[0].incarnation, Incarnation{50});
  EXPECT_EQ(killed[1].node, "a") << "on the other node it goes on";
  tell(NodeJoined{kB, {}, {}});
  EXPECT_GT(of<Spawn>(pass(milliseconds(250)))[0].incarnation, Incarnation{50});
}

TEST_F(JobAdoption, ANewNodeThatClaimsTheProcessesOfOthersTakesNothingFromThem) {
  make_ready();
  next_launcher();
  const auto claimed =
      tell(NodeJoined{{.name = "c"}, running({"router-0", "prefill-0", "decode-0"}), {}});
  ASSERT_EQ(of<SendSignal>(claimed).size(), 3U);
  for (const SendSignal& signal : of<SendSignal>(claimed)) {
    EXPECT_EQ(signal.node, "c");
  }
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  EXPECT_EQ(of<ReportAdopted>(tell(NodeJoined{kB, running({"decode-0"}), {}}))[0].adopted, 3U);
  EXPECT_EQ(at("decode-0").pid, 77);
  EXPECT_EQ(at("decode-0").restarts, 0U);
}

TEST_F(JobAdoption, ANodeCannotTellOfTheProcessesOfAnotherOne) {
  make_ready();
  const Incarnation decode = at("decode-0").incarnation;
  for (const Event& lie :
       {Event(ProcessExited{decode, "signal 11", true, "a"}), Event(SpawnFailed{decode, "no", "a"}),
        Event(Spawned{decode, 9, "a"}), Event(ProcessSeen{decode, {.stopped = true}, "a"})}) {
    EXPECT_TRUE(tell(lie).empty());
  }
  EXPECT_EQ(at("decode-0").state, ProcessState::kReady);
  EXPECT_EQ(at("decode-0").crashes, 0U);
  EXPECT_NE(at("decode-0").pid, 9);
}

TEST_F(JobAdoption, WhatTheReportOfADeathMayHaveLeftIsKilled) {
  make_ready();
  const auto said =
      of<SendSignal>(tell(ProcessExited{at("decode-0").incarnation, "signal 11", true, "b"}));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].signal, Signal::kKill);
  EXPECT_EQ(said[0].node, "b");
}

// Awaited nodes and others that joined meanwhile can be more than a record holds.
TEST_F(JobAdoption, ARecordHasNoMoreNodesThanItsBytesMayHave) {
  std::vector<Node> nodes(kNodesMax);
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].name = "lab/" + std::to_string(100'000 + i);
  }
  JobRecord record{.nodes = nodes};
  Job job({}, kTiming, "n", JobSetting{.launcher = 2, .record = record});
  std::vector<Effect> effects;
  job.step(Started{}, now_, effects);
  job.step(NodeJoined{kA, {}, {}}, now_, effects);
  std::string bytes;
  net::WireWriter writer(bytes);
  write_fields(writer, job.record());
  EXPECT_EQ(job.record().nodes.size(), kNodesMax);
}

TEST_F(JobAdoption, TheWorkersOfAJobAreBoundedAlsoWhileSomeLeave) {
  make_ready();
  tell(sizes(1, limits::kWorkersMax + 10));
  EXPECT_EQ(job_->processes().size(), limits::kWorkersMax + 1);
}

TEST_F(JobAdoption, AnIdThatDidNotReachTheDiskIsNotUsedAgain) {
  make_ready();
  const JobRecord old = job_->record();
  tell(sizes(2, 0, kDemand));
  confirm();
  const std::string lost = at("decode-0").next_engine_id;
  ASSERT_NE(lost, "");
  next_launcher(old);
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  tell(NodeJoined{kB, running({"decode-0"}), {}});
  tell(sizes(2, 0, kDemand));
  confirm();
  EXPECT_NE(at("decode-0").next_engine_id, "");
  EXPECT_NE(at("decode-0").next_engine_id, lost);
}

TEST_F(JobAdoption, AProcessThatChangedItsRoleUnseenIsAskedToRegister) {
  make_ready();
  tell(sizes(2, 0, kDemand));
  confirm();
  const std::string next = at("decode-0").next_engine_id;
  next_launcher();
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  tell(NodeJoined{kB, running({"decode-0"}), {}});
  const auto asked = say("decode-0", net::HeartbeatSent{.name = "decode-0", .engine_id = next});
  EXPECT_EQ(sent<net::RegisterAsked>(asked).size(), 1U);
  say("decode-0", net::Registered{.worker = {.name = "decode-0", .engine_id = next}});
  EXPECT_EQ(at("decode-0").engine_id, next);
  EXPECT_EQ(at("decode-0").role, net::Role::kPrefill);
  EXPECT_EQ(at("decode-0").state, ProcessState::kRegistered);
}

TEST_F(JobAdoption, ANodeThatDoesNotComeBackIsLost) {
  make_ready();
  next_launcher();
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  EXPECT_EQ(at("decode-0").state, ProcessState::kReady) << "it may serve all the time";
  for (int i = 0; i < 9; ++i) {
    beat("decode-0");
    EXPECT_TRUE(of<ReportAdopted>(pass(seconds(1))).empty());
  }
  EXPECT_EQ(of<ReportAdopted>(pass(seconds(1))).size(), 1U);
  EXPECT_EQ(at("decode-0").place.node, "");
  EXPECT_EQ(of<Spawn>(pass(milliseconds(250)))[0].place.node, "a");
  // Its agent comes after all: what runs there was given up.
  const auto late = tell(NodeJoined{kB, {{Incarnation{3}, 9}}, {}});
  ASSERT_EQ(of<SendSignal>(late).size(), 1U);
  EXPECT_EQ(of<SendSignal>(late)[0].signal, Signal::kKill);
}

TEST_F(JobAdoption, AProcessThatRegisteredUnseenIsAskedToDoSoAgain) {
  tell(Started{});
  next_launcher();
  EXPECT_EQ(at("decode-0").state, ProcessState::kStarting);
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  tell(NodeJoined{kB, running({"decode-0"}), {}});
  EXPECT_EQ(sent<net::RegisterAsked>(beat("decode-0")).size(), 1U);
  register_process("decode-0");
  EXPECT_EQ(at("decode-0").state, ProcessState::kRegistered);
  EXPECT_TRUE(sent<net::RegisterAsked>(beat("decode-0")).empty());
  EXPECT_EQ(job_->state(), JobState::kStarting) << "nobody was told that it is ready";
}

TEST_F(JobAdoption, AProcessThatWasLeavingLeaves) {
  make_ready();
  tell(sizes(0, 1));
  next_launcher();
  EXPECT_EQ(at("prefill-0").state, ProcessState::kDraining);
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  tell(NodeJoined{kB, running({"decode-0"}), {}});
  pass(seconds(3));  // The router does not confirm.
  EXPECT_EQ(sent<net::Drain>(beat("prefill-0")).size(), 1U) << "it hears nothing before it speaks";
  EXPECT_TRUE(sent<net::Drain>(beat("prefill-0")).empty());
  tell(ProcessExited{at("prefill-0").incarnation, "exit code 0"});
  EXPECT_EQ(job_->find("prefill-0"), nullptr);
}

TEST_F(JobAdoption, TheNextJobHasTheWarmWorkersAndStartsOnlyTheRouters) {
  make_ready();
  tell(StopAsked{0, true});
  tell(ProcessExited{at("router-0").incarnation, "exit code 0"});
  ASSERT_EQ(job_->state(), JobState::kDone);
  next_launcher();
  EXPECT_EQ(job_->state(), JobState::kStarting) << "nobody was told that it is ready";
  tell(NodeJoined{kA, running({"prefill-0"}), {}});
  const auto spawned = of<Spawn>(tell(NodeJoined{kB, running({"decode-0"}), {}}));
  ASSERT_EQ(spawned.size(), 1U);
  EXPECT_EQ(spawned[0].name, "router-0");
  EXPECT_EQ(at("router-0").restarts, 0U);
  register_process("router-0");
  beat("prefill-0");
  beat("decode-0");
  confirm();
  tell(ProbeSucceeded{1, 4096});
  confirm();
  EXPECT_EQ(job_->state(), JobState::kReady);
}

TEST_F(JobAdoption, TheNextJobStartsWhatWasNotWarmWhereThereIsRoom) {
  make_ready();
  tell(StopAsked{0, true});
  tell(ProcessExited{at("decode-0").incarnation, "signal 9"});
  tell(ProcessExited{at("router-0").incarnation, "exit code 0"});
  EXPECT_EQ(job_->record().processes.size(), 1U) << "what stays";
  next_launcher();
  tell(NodeJoined{kA, running({"prefill-0"}), {}});
  const auto spawned = of<Spawn>(tell(NodeJoined{kB, {}, {}}));
  ASSERT_EQ(spawned.size(), 2U);
  EXPECT_EQ(spawned[0].name, "router-0");
  EXPECT_EQ(spawned[1].name, "decode-0");
}

TEST_F(JobAdoption, AStopWaitsForTheNodes) {
  make_ready();
  next_launcher();
  EXPECT_TRUE(of<CloseDoors>(tell(StopAsked{0})).empty());
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  const auto done = tell(NodeJoined{kB, running({"decode-0"}), {}});
  EXPECT_EQ(of<CloseDoors>(done).size(), 1U);
  EXPECT_TRUE(of<ReportReady>(done).empty());
  EXPECT_EQ(job_->state(), JobState::kDraining);
  EXPECT_TRUE(of<SendSignal>(done).empty());
  EXPECT_EQ(sent<net::Drain>(beat("router-0")).size(), 1U);
}

TEST_F(JobAdoption, AStopAtOnceWaitsForTheNodesAndKillsWhatRunsThere) {
  make_ready();
  next_launcher();
  tell(StopAsked{0});
  EXPECT_TRUE(of<SendSignal>(tell(StopAsked{0})).empty()) << "no agent would hear it";
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  const auto killed = of<SendSignal>(tell(NodeJoined{kB, running({"decode-0"}), {}}));
  ASSERT_EQ(killed.size(), 3U);
  EXPECT_EQ(killed[2].signal, Signal::kKill);
  EXPECT_EQ(job_->state(), JobState::kDraining);
}

TEST_F(JobAdoption, AThirdStopWaitsForNoNode) {
  make_ready();
  next_launcher();
  tell(StopAsked{0});
  tell(StopAsked{0});
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  EXPECT_EQ(of<SendSignal>(tell(StopAsked{0})).size(), 2U) << "it ends what it knows of";
  EXPECT_EQ(job_->state(), JobState::kDraining);
}

TEST_F(JobAdoption, ASignalThatNoAgentHeardIsRepeatedWhenTheNodeJoins) {
  make_ready();
  tell(sizes(1, 2, kDemand));
  const std::string node = at("decode-1").place.node;
  tell(sizes(1, 1, kDemand));  // The order that ends it is lost with the launcher.
  const Incarnation incarnation = at("decode-1").incarnation;
  next_launcher();
  for (const Node& each : {kA, kB}) {
    std::vector<RunningProcess> there;
    for (const char* name : {"router-0", "prefill-0", "decode-0", "decode-1"}) {
      if (at(name).place.node == each.name) {
        there.push_back({at(name).incarnation, 77});
      }
    }
    const auto signals = of<SendSignal>(tell(NodeJoined{each, there, {}}));
    ASSERT_EQ(signals.size(), each.name == node ? 1U : 0U);
    EXPECT_TRUE(signals.empty() ||
                (signals[0].incarnation == incarnation && signals[0].signal == Signal::kKill));
  }
}

TEST_F(JobAdoption, TheNextLauncherKnowsTheSizes) {
  make_ready();
  tell(sizes(1, 2, kDemand));
  const Job next({}, kTiming, "n",
                 JobSetting{.groups = sizes(1, 1).groups, .launcher = 2, .record = job_->record()});
  EXPECT_EQ(next.groups()[1].wanted, 2U) << "a person or the autoscaler had set it";
}

TEST_F(JobAdoption, AProcessThatIsAddedMeanwhileWaitsForTheNodes) {
  make_ready();
  next_launcher();
  EXPECT_TRUE(of<Spawn>(tell(sizes(1, 2))).empty());
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  const auto done = of<Spawn>(tell(NodeJoined{kB, running({"decode-0"}), {}}));
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].name, "decode-1");
}

TEST_F(JobAdoption, AJobThatFailsMeanwhileKillsWhatComesAndEnds) {
  tell(Started{});
  say("prefill-0", net::Registered{.worker = {.name = "prefill-0",
                                              .engine_id = at("prefill-0").engine_id,
                                              .model_digest = "one"}});
  next_launcher();
  // The job fails before its nodes have come.
  say("decode-0", net::Registered{.worker = {.name = "decode-0",
                                             .engine_id = at("decode-0").engine_id,
                                             .model_digest = "other"}});
  ASSERT_EQ(job_->state(), JobState::kDraining);
  const auto on_a = of<SendSignal>(tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}}));
  EXPECT_EQ(on_a.size(), 2U);
  tell(ProcessExited{at("router-0").incarnation, "signal 9"});
  tell(ProcessExited{at("prefill-0").incarnation, "signal 9"});
  EXPECT_EQ(of<Finish>(pass(seconds(10))).size(), 1U) << "node b does not come";
}

TEST_F(JobAdoption, AJobThatWasScaledToZeroIsReadyThoughNothingIsLeft) {
  make_ready();
  tell(sizes(0, 0));
  confirm();
  for (const char* name : {"prefill-0", "decode-0"}) {
    tell(ProcessExited{at(name).incarnation, "exit code 0"});
  }
  next_launcher();
  tell(NodeJoined{kA, {}, {}});
  EXPECT_EQ(of<ReportReady>(tell(NodeJoined{kB, {}, {}})).size(), 1U);
  EXPECT_EQ(job_->state(), JobState::kReady) << "the next request may bring workers back";
  EXPECT_EQ(of<Spawn>(pass(milliseconds(250))).size(), 1U);
}

TEST_F(JobAdoption, AJobOfWhichNothingIsLeftStartsAsAnyOther) {
  make_ready();
  next_launcher();
  tell(NodeJoined{kA, {}, {}});
  const auto done = tell(NodeJoined{kB, {}, {}});
  EXPECT_EQ(of<ReportAdopted>(done)[0].adopted, 0U);
  EXPECT_TRUE(of<ReportReady>(done).empty());
  EXPECT_EQ(job_->state(), JobState::kStarting);
  EXPECT_EQ(of<Spawn>(pass(milliseconds(250))).size(), 3U);
}

TEST_F(JobAdoption, LaunchersMayDieBeforeTheyHaveAdopted) {
  make_ready();
  const Incarnation before = at("decode-0").incarnation;
  for (int i = 0; i < 5; ++i) {
    next_launcher();
    if (i % 2 == 0) {
      tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
    }
  }
  tell(NodeJoined{kA, running({"router-0", "prefill-0"}), {}});
  const auto done = tell(NodeJoined{kB, running({"decode-0"}), {}});
  EXPECT_EQ(of<ReportAdopted>(done)[0].adopted, 3U);
  EXPECT_EQ(at("decode-0").incarnation, before);
  EXPECT_EQ(at("decode-0").state, ProcessState::kReady);
}

// --- stories: launchers, processes and nodes that die at random, from a seed

// What runs on the nodes, as their agents know it. Launchers come and go. The record on disk is as
// old as JobRun lets it be: of the last step that started something, or of a later one.
class Story {
 public:
  explicit Story(uint64_t seed) : random_(seed) { begin(std::nullopt); }

  void run() {
    for (int turn = 0; turn < 300; ++turn) {
      fault();
      live(milliseconds(100));
      if (job_->state() >= JobState::kDraining) {
        return;  // It failed while it started, so this run of the job is over.
      }
    }
    down_.clear();
    for (int turn = 0; turn < 600; ++turn) {
      live(milliseconds(100));
    }
    EXPECT_EQ(job_->state(), JobState::kReady) << job_->waiting_for();
    EXPECT_EQ(running_.size(), 4U);
    for (const Process& process : job_->processes()) {
      EXPECT_EQ(process.state, ProcessState::kReady) << process.name;
      const auto found = running_.find(process.incarnation);
      ASSERT_NE(found, running_.end()) << process.name;
      EXPECT_EQ(found->second.node, process.place.node);
    }
    EXPECT_EQ(list_.workers().size(), 3U);
  }

 private:
  struct Running {
    std::string name;
    std::string node;
    std::string engine_id;
    bool registered = false;  // As it believes itself: it was acknowledged.
  };

  static std::vector<ProcessPlan> plan() {
    return {{"router-0", net::Role::kRouter, "", {}, {.node = "a"}},
            {"prefill-0", net::Role::kPrefill, "", {.cores = 1}, {"a"}},
            {"decode-0", net::Role::kDecode, "", {.cores = 1}, {"b"}},
            {"decode-1", net::Role::kDecode, "", {.cores = 1}, {"b"}}};
  }

  void begin(const std::optional<JobRecord>& record) {
    ++launcher_;
    probes_.clear();
    joined_.clear();
    job_ = std::make_unique<Job>(
        plan(), kTiming, "n",
        JobSetting{.nodes = {kA, kB}, .launcher = launcher_, .record = record});
    if (!record) {
      joined_ = {"a", "b"};
    }
    step(Started{});
  }

  void fault() {
    const std::string node = random_.chance(0.5) ? "a" : "b";
    switch (random_.below(40)) {
      case 0:
      case 1:
        begin(random_.chance(0.5) ? durable_ : job_->record());
        break;
      case 2:
        if (!running_.empty()) {
          auto one = running_.begin();
          std::advance(one, static_cast<ptrdiff_t>(random_.below(running_.size())));
          end(one->first);
        }
        break;
      case 3:  // Its agent is lost, with all that runs there.
        if (down_.insert(node).second) {
          std::erase_if(running_, [&](const auto& one) { return one.second.node == node; });
          if (joined_.erase(node) > 0) {
            step(NodeLost{node, "no answer"});
          }
        }
        break;
      case 4:
        down_.erase(node);
        break;
      default:
        break;
    }
  }

  void live(Duration duration) {
    now_ += duration;
    for (const Node& node : {kA, kB}) {
      if (!down_.contains(node.name) && !joined_.contains(node.name) && random_.chance(0.3)) {
        joined_.insert(node.name);
        NodeJoined event{.node = node, .running = {}, .doors = {}};
        for (const auto& [incarnation, one] : running_) {
          if (one.node == node.name) {
            event.running.push_back({incarnation, 7});
          }
        }
        step(event);
      }
    }
    if (now_ >= job_->next_wakeup()) {
      step(TimePassed{});
    }
    for (const auto& [incarnation, one] : std::map(running_)) {
      if (!running_.contains(incarnation) || !is_allowed(one)) {
        continue;  // Its key is of an incarnation that the launcher gave up.
      }
      if (!one.registered) {
        step(MessageArrived{
            one.name, net::Registered{.worker = {.name = one.name, .engine_id = one.engine_id}}});
      }
      step(MessageArrived{one.name,
                          net::HeartbeatSent{.name = one.name, .engine_id = one.engine_id}});
    }
    for (const Probe& probe : std::exchange(probes_, {})) {
      step(ProbeSucceeded{probe.probe, 4096});
    }
  }

  bool is_allowed(const Running& one) const {
    const Process* const process = job_->find(one.name);
    return process != nullptr && process->engine_id == one.engine_id;
  }

  void end(Incarnation incarnation) {
    const auto one = running_.extract(incarnation);
    if (!one.empty() && joined_.contains(one.mapped().node)) {
      due_.emplace_back(ProcessExited{incarnation, "signal 9 (Killed)", false, one.mapped().node});
    }
  }

  void step(const Event& event) {
    std::vector<Effect> effects;
    job_->step(event, now_, effects);
    if (std::ranges::any_of(
            effects, [](const Effect& effect) { return std::holds_alternative<Spawn>(effect); })) {
      durable_ = job_->record();
    }
    for (const Effect& effect : effects) {
      carry_out(effect);
    }
    while (!due_.empty()) {
      const Event next = due_.front();
      due_.erase(due_.begin());
      step(next);
    }
  }

  void carry_out(const Effect& effect) {
    if (const auto* spawn = std::get_if<Spawn>(&effect)) {
      EXPECT_TRUE(used_.insert(spawn->incarnation).second) << "an incarnation is made once";
      if (!joined_.contains(spawn->place.node)) {
        due_.emplace_back(
            SpawnFailed{spawn->incarnation, "the node is not there", spawn->place.node});
        return;
      }
      for (const auto& [incarnation, one] : running_) {
        EXPECT_FALSE(one.name == spawn->name && joined_.contains(one.node))
            << spawn->name << " runs already";
      }
      running_[spawn->incarnation] = {spawn->name, spawn->place.node, spawn->engine_id};
      due_.emplace_back(Spawned{spawn->incarnation, 7, spawn->place.node});
    } else if (const auto* signal = std::get_if<SendSignal>(&effect)) {
      const auto found = running_.find(signal->incarnation);
      if (found != running_.end() && joined_.contains(found->second.node)) {
        end(signal->incarnation);
      }
    } else if (const auto* probe = std::get_if<Probe>(&effect)) {
      probes_.push_back(*probe);
    } else if (const auto* send = std::get_if<Send>(&effect)) {
      hear(*send);
    }
  }

  void hear(const Send& send) {
    const auto one = std::ranges::find_if(running_, [&](const auto& each) {
      return each.second.name == send.peer && is_allowed(each.second);
    });
    if (one == running_.end()) {
      return;
    }
    if (std::holds_alternative<net::Acknowledge>(send.message)) {
      one->second.registered = true;
    } else if (std::holds_alternative<net::RegisterAsked>(send.message)) {
      one->second.registered = false;
    } else if (const auto* told = std::get_if<net::Membership>(&send.message)) {
      if (router_ != one->second.engine_id) {
        router_ = one->second.engine_id;
        list_ = {};
      }
      if (list_.take(*told)) {
        due_.emplace_back(
            MessageArrived{send.peer, net::MembershipApplied{router_, told->version}});
      } else {
        EXPECT_GT(told->since, 0U) << "a whole list is never older than what the router has";
      }
    }
  }

  Random random_;
  Instant now_{seconds(1000)};
  uint64_t launcher_ = 0;
  std::unique_ptr<Job> job_;
  std::optional<JobRecord> durable_;
  std::map<Incarnation, Running> running_;
  std::set<std::string> joined_;  // With this launcher.
  std::set<std::string> down_;
  std::set<Incarnation> used_;
  std::vector<Probe> probes_;
  std::vector<Event> due_;
  std::string router_;
  net::MemberList list_;
};

TEST(AdoptionStories, WhateverDiesTheJobGetsWellAndNothingRunsTwice) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Story(seed).run();
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace pdjob::launcher
