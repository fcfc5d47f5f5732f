#include "launcher/job/job.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/check.h"
#include "common/exit_code.h"
#include "common/random.h"
#include "net/control/member_list.h"
#include "tests/support/job_sizes.h"
#include "tests/support/node_says.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using test::sizes;

const JobTiming kTiming{.start_timeout = seconds(60),
                        .stop_timeout = seconds(30),
                        .heartbeat_timeout = seconds(3),
                        .hang_timeout = seconds(15),
                        .progress_timeout = seconds(60),
                        .probe_retry = milliseconds(200),
                        .restart = {.backoff_min = milliseconds(250),
                                    .backoff_max = seconds(8),
                                    .healthy_after = seconds(60),
                                    .attempts = 3}};

std::vector<ProcessPlan> one_of_each() {
  return {{"router-0", net::Role::kRouter},
          {"prefill-0", net::Role::kPrefill},
          {"decode-0", net::Role::kDecode}};
}

// A Job and its effects. Tests advance the time by hand.
class World {
 public:
  explicit World(std::vector<ProcessPlan> plan = one_of_each(), const JobSetting& setting = {})
      : job(std::move(plan), kTiming, "n", setting) {}

  Job job;
  Instant now{seconds(1000)};
  std::vector<Effect> effects;

  // Whether the router confirms each membership at once.
  bool router_confirms = true;
  bool routers_are_deaf = false;
  bool routers_lie = false;                      // They confirm versions that they never received.
  std::map<std::string, net::MemberList> lists;  // Each router's list, from its messages.
  std::string last_told;
  uint64_t version_sent = 0;  // Of the last membership to any router.

  void tell(const Event& event) {
    const size_t before = effects.size();
    job.step(test::as_its_node_says(event, job), now, effects);
    for (size_t i = before; i < effects.size(); ++i) {
      const Send* send = std::get_if<Send>(&effects[i]);
      if (send != nullptr && std::holds_alternative<net::Membership>(send->message)) {
        const net::Membership told = std::get<net::Membership>(send->message);
        version_sent = told.version;
        hear(std::string(send->peer), told);
      }
    }
  }
  // Acts as a router.
  void hear(const std::string& router, const net::Membership& told) {
    if (routers_are_deaf) {
      return;
    }
    if (told.since == 0) {
      lists[router] = {};  // The router may have been restarted.
    }
    const bool taken = lists[router].take(told);
    EXPECT_TRUE(taken || routers_lie) << told.since;
    last_told = router;
    if (taken && router_confirms) {
      confirm(told.version, router);
    }
  }
  void confirm(uint64_t version, const std::string& router = "router-0") {
    const std::string engine_id = process(router).engine_id;
    tell(MessageArrived{router, net::MembershipApplied{engine_id, version}});
  }
  // Confirms what was sent, and what is sent then, until nothing is new.
  void confirm_all() {
    for (uint64_t version = 0; version != version_sent;) {
      version = version_sent;
      confirm(version);
    }
  }
  void pass(Duration duration) {
    now += duration;
    tell(TimePassed{});
  }

  const Process& process(const std::string& name) const {
    return *std::ranges::find(job.processes(), name, &Process::name);
  }
  ProcessState state_of(const std::string& name) const { return process(name).state; }

  void register_process(const std::string& name) {
    net::Registered message{
        .worker = {.name = name, .engine_id = process(name).engine_id, .port = 40001}, .pid = 1};
    tell(MessageArrived{name, message});
  }
  void register_with_digest(const std::string& name, const std::string& digest) {
    const net::WorkerEntry worker{.name = name,
                                  .engine_id = process(name).engine_id,
                                  .port = 40001,
                                  .model = "m",
                                  .model_digest = digest};
    tell(MessageArrived{name, net::Registered{.worker = worker, .pid = 1}});
  }
  void beat(const std::string& name) {
    tell(MessageArrived{name,
                        net::HeartbeatSent{.name = name, .engine_id = process(name).engine_id}});
  }
  void beat_all() {
    for (const Process& each : job.processes()) {
      if (each.serving()) {
        beat(std::string(each.name));
      }
    }
  }
  // A heartbeat that reports the engine's current turn as lasting `still`.
  void beat_standing_still(const std::string& name, Duration still) {
    const auto whole = [](Duration duration) {
      return static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(duration).count());
    };
    tell(MessageArrived{name, net::HeartbeatSent{.name = name,
                                                 .engine_id = process(name).engine_id,
                                                 .load = {.standstill_ms = whole(still)}}});
  }
  void exit_process(const std::string& name, const std::string& how = "signal 9 (Killed)") {
    tell(ProcessExited{process(name).incarnation, how, false, process(name).place.node});
  }
  void crash_process(const std::string& name) {
    tell(ProcessExited{process(name).incarnation, "signal 11 (Segmentation fault)", true,
                       process(name).place.node});
  }
  // Returns the last cause that routers were told for this worker.
  std::optional<net::LossCause> cause_told(const std::string& engine_id) const {
    for (const net::Departure& gone : last_membership().left) {
      if (gone.engine_id == engine_id) {
        return gone.cause;
      }
    }
    return std::nullopt;
  }

  void start() {
    tell(Started{});
    for (const Process& each : job.processes()) {
      tell(Spawned{each.incarnation, 100 + static_cast<int64_t>(each.incarnation.value),
                   each.place.node});
    }
  }
  void register_all() {
    for (const Process& each : job.processes()) {
      register_process(std::string(each.name));
    }
  }
  // Takes the probes that were sent, with all other effects.
  std::vector<Probe> take_probes() {
    std::vector<Probe> probes = all<Probe>();
    effects.clear();
    return probes;
  }
  void answer_probes() {
    for (std::vector<Probe> probes = take_probes(); !probes.empty(); probes = take_probes()) {
      for (const Probe& probe : probes) {
        tell(ProbeSucceeded{probe.probe, 4096});
      }
    }
  }
  void make_ready() {
    start();
    register_all();
    answer_probes();
    ASSERT_EQ(job.state(), JobState::kReady);
    effects.clear();
  }

  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const Effect& effect : effects) {
      if (const T* one = std::get_if<T>(&effect)) {
        found.push_back(*one);
      }
    }
    return found;
  }
  template <class T>
  const T* last() const {
    for (auto effect = effects.rbegin(); effect != effects.rend(); ++effect) {
      if (const T* one = std::get_if<T>(&*effect)) {
        return one;
      }
    }
    return nullptr;
  }
  // Returns the workers that the last told router knows, in the order of the plan.
  std::vector<std::string> members() const {
    std::vector<std::string> names;
    const auto list = lists.find(last_told);
    if (list == lists.end()) {
      return {"nothing published"};
    }
    for (const Process& one : job.processes()) {
      const auto& workers = list->second.workers();
      if (std::ranges::find(workers, one.name, &net::WorkerEntry::name) != workers.end()) {
        names.push_back(one.name);
      }
    }
    return names;
  }
  const net::Membership& last_membership() const {
    const net::Membership* last = nullptr;
    for (const Effect& effect : effects) {
      const Send* send = std::get_if<Send>(&effect);
      if (send != nullptr && std::holds_alternative<net::Membership>(send->message)) {
        last = &std::get<net::Membership>(send->message);
      }
    }
    PDJOB_CHECK(last != nullptr);
    return *last;
  }
  template <class M>
  bool sent(const std::string& peer) const {
    return std::ranges::any_of(all<Send>(), [&](const Send& send) {
      return send.peer == peer && std::holds_alternative<M>(send.message);
    });
  }
};

using Names = std::vector<std::string>;

TEST(Job, StartsEveryProcessAtOnceWithItsOwnEngineId) {
  World world;
  world.start();
  const auto spawns = world.all<Spawn>();
  ASSERT_EQ(spawns.size(), 3U);
  EXPECT_EQ(spawns[1].name, "prefill-0");
  EXPECT_EQ(spawns[1].engine_id, "prefill-0.n.2");
  EXPECT_EQ(world.state_of("prefill-0"), ProcessState::kStarting);
  EXPECT_EQ(world.process("prefill-0").pid, 102);
}

TEST(Job, IsReadyOnlyAfterAProbeMovedKvThroughEveryProcess) {
  World world;
  world.start();
  world.register_process("decode-0");
  world.register_process("prefill-0");
  EXPECT_EQ(world.last<Probe>(), nullptr);
  world.register_process("router-0");
  ASSERT_NE(world.last<Probe>(), nullptr);
  EXPECT_EQ(world.last<Probe>()->prefill, "prefill-0");
  EXPECT_EQ(world.last<Probe>()->decode, "decode-0");
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0"}));
  EXPECT_EQ(world.last<ReportReady>(), nullptr);

  world.tell(ProbeSucceeded{1, 4096});
  EXPECT_NE(world.last<ReportReady>(), nullptr);
  EXPECT_EQ(world.job.state(), JobState::kReady);
  for (const Process& process : world.job.processes()) {
    EXPECT_EQ(process.state, ProcessState::kReady);
  }
}

std::vector<ProcessPlan> with_batch() {
  auto plan = one_of_each();
  plan.insert(plan.begin() + 1, {"batch", net::Role::kBatch});
  return plan;
}

TEST(Job, TheBatchApiIsReadyOnceItRegisteredAndIsNoMember) {
  World world(with_batch());
  world.start();
  for (const char* const name : {"router-0", "prefill-0", "decode-0"}) {
    world.register_process(name);
  }
  world.answer_probes();
  EXPECT_EQ(world.job.state(), JobState::kStarting) << "the job waits for it";
  world.register_process("batch");
  EXPECT_EQ(world.state_of("batch"), ProcessState::kReady);
  EXPECT_TRUE(world.all<Probe>().empty());
  EXPECT_EQ(world.job.state(), JobState::kReady);
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0"}));
}

TEST(Job, TheBatchApiComesBackAndNobodyIsTold) {
  World world(with_batch());
  world.make_ready();
  world.crash_process("batch");
  EXPECT_EQ(world.state_of("batch"), ProcessState::kBackoff);
  world.pass(kTiming.restart.backoff_min);
  EXPECT_EQ(world.state_of("batch"), ProcessState::kStarting);
  world.register_process("batch");
  EXPECT_EQ(world.state_of("batch"), ProcessState::kReady);
  EXPECT_FALSE(world.sent<net::Membership>("router-0"));
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

TEST(Job, TheBatchApiDrainsWithTheRoutersAndBeforeTheWorkers) {
  World world(with_batch());
  world.make_ready();
  world.tell(StopAsked{0});
  EXPECT_TRUE(world.sent<net::Drain>("router-0"));
  EXPECT_TRUE(world.sent<net::Drain>("batch"));
  EXPECT_FALSE(world.sent<net::Drain>("decode-0"));
}

TEST(Job, EachOfSeveralRoutersIsProbedBeforeTheJobIsReady) {
  World world({{"router-0", net::Role::kRouter},
               {"router-1", net::Role::kRouter},
               {"prefill-0", net::Role::kPrefill},
               {"decode-0", net::Role::kDecode}});
  world.start();
  world.register_all();
  const std::vector<Probe> probes = world.take_probes();
  ASSERT_EQ(probes.size(), 2U);
  EXPECT_EQ(probes[0].router, "router-0");
  EXPECT_EQ(probes[1].router, "router-1");
  world.tell(ProbeSucceeded{probes[0].probe, 4096});
  EXPECT_EQ(world.job.state(), JobState::kStarting);
  world.tell(ProbeSucceeded{probes[1].probe, 4096});
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

TEST(Job, ProbesOnlyWhatTheRouterHasConfirmedToKnow) {
  World world;
  world.router_confirms = false;
  world.start();
  world.register_process("router-0");
  const uint64_t without_workers = world.version_sent;
  world.register_process("prefill-0");
  world.register_process("decode-0");
  EXPECT_EQ(world.last<Probe>(), nullptr);
  EXPECT_GT(world.job.next_wakeup(), world.now);  // The job must not spin.
  world.confirm(without_workers);
  const uint64_t with_both = world.version_sent;
  EXPECT_GT(with_both, without_workers);
  EXPECT_EQ(world.last<Probe>(), nullptr);
  world.confirm(with_both + 1);  // The router cannot know that version.
  world.tell(MessageArrived{"router-0", net::MembershipApplied{"router-0.n.77", with_both}});
  world.tell(MessageArrived{"prefill-0", net::MembershipApplied{"prefill-0.n.2", with_both}});
  EXPECT_EQ(world.last<Probe>(), nullptr);
  world.confirm(with_both);
  ASSERT_NE(world.last<Probe>(), nullptr);
}

TEST(Job, WhatARouterConfirmedIsForgottenWhenItOrTheWorkerDies) {
  World world;
  world.make_ready();
  world.router_confirms = false;
  world.exit_process("router-0");
  world.pass(milliseconds(250));
  world.register_process("router-0");
  EXPECT_EQ(world.last<Probe>(), nullptr);
  world.confirm(world.version_sent);
  ASSERT_NE(world.last<Probe>(), nullptr);
  world.answer_probes();
  world.confirm_all();

  world.exit_process("decode-0");
  const uint64_t without_decode = world.version_sent;
  world.pass(milliseconds(250));
  world.register_process("decode-0");
  world.confirm(without_decode);
  EXPECT_EQ(world.last<Probe>(), nullptr);
  world.confirm_all();
  EXPECT_NE(world.last<Probe>(), nullptr);
}

TEST(Job, AMembershipThatIsNotConfirmedIsSentAgain) {
  World world;
  world.router_confirms = false;
  world.start();
  world.register_all();
  world.effects.clear();
  world.beat("router-0");
  EXPECT_FALSE(world.sent<net::Membership>("router-0"));  // The first one is still on its way.
  world.now += milliseconds(500);
  world.beat("router-0");
  EXPECT_TRUE(world.sent<net::Membership>("router-0"));
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0"}));
  world.confirm(world.version_sent);
  EXPECT_NE(world.last<Probe>(), nullptr);
  world.effects.clear();
  world.now += milliseconds(500);
  world.beat("router-0");
  EXPECT_TRUE(world.all<Send>().empty());
}

TEST(Job, AProbeThatMovedNoKvDoesNotMakeItReady) {
  World world;
  world.start();
  world.register_all();
  world.tell(ProbeSucceeded{1, 0});
  EXPECT_EQ(world.job.state(), JobState::kStarting);
  EXPECT_NE(world.job.waiting_for().find("prefill-0 -> decode-0: answered, but moved no KV"),
            std::string::npos);
}

TEST(Job, WithoutPrefillWorkersAProbeNeedsNoKv) {
  World world({{"router-0", net::Role::kRouter}, {"decode-0", net::Role::kBoth}});
  world.start();
  world.register_all();
  ASSERT_NE(world.last<Probe>(), nullptr);
  EXPECT_EQ(world.last<Probe>()->prefill, "");
  world.tell(ProbeSucceeded{1, 0});
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

TEST(Job, ProbesReachEveryWorkerOfUnequalGroups) {
  World world({{"router-0", net::Role::kRouter},
               {"prefill-0", net::Role::kPrefill},
               {"decode-0", net::Role::kDecode},
               {"decode-1", net::Role::kDecode},
               {"decode-2", net::Role::kDecode}});
  world.start();
  world.register_all();
  Names probed;
  for (const Probe& probe : world.take_probes()) {
    probed.push_back(probe.prefill + ">" + probe.decode);
    world.tell(ProbeSucceeded{probe.probe, 1});
  }
  EXPECT_EQ(probed, (Names{"prefill-0>decode-0", "prefill-0>decode-1", "prefill-0>decode-2"}));
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

std::vector<ProcessPlan> two_models() {
  return {{"router-0", net::Role::kRouter, ""},
          {"small-prefill-0", net::Role::kPrefill, "small"},
          {"small-decode-0", net::Role::kDecode, "small"},
          {"large-prefill-0", net::Role::kPrefill, "large"},
          {"large-decode-0", net::Role::kDecode, "large"},
          {"large-decode-1", net::Role::kDecode, "large"},
          {"alone-decode-0", net::Role::kBoth, "alone"}};
}

TEST(Job, ProbesPairWorkersOfOneModelOnlyAndNameIt) {
  World world(two_models());
  world.start();
  world.register_all();
  Names probed;
  for (const Probe& probe : world.take_probes()) {
    probed.push_back(probe.model + ": " + probe.prefill + ">" + probe.decode);
    EXPECT_EQ(world.job.state(), JobState::kStarting);
    world.tell(ProbeSucceeded{probe.probe, probe.prefill.empty() ? 0U : 1U});
  }
  EXPECT_EQ(probed,
            (Names{"small: small-prefill-0>small-decode-0", "large: large-prefill-0>large-decode-0",
                   "large: large-prefill-0>large-decode-1", "alone: >alone-decode-0"}));
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

TEST(Job, AModelIsProbedWithoutWaitingForTheOthers) {
  World world(two_models());
  world.start();
  world.register_process("router-0");
  world.register_process("small-prefill-0");
  world.register_process("large-decode-0");
  EXPECT_EQ(world.last<Probe>(), nullptr);  // A pair, but of two models.
  world.register_process("large-prefill-0");
  ASSERT_NE(world.last<Probe>(), nullptr);
  EXPECT_EQ(world.last<Probe>()->model, "large");
  world.tell(ProbeSucceeded{1, 1});
  EXPECT_EQ(world.state_of("large-decode-0"), ProcessState::kReady);
  EXPECT_EQ(world.state_of("small-prefill-0"), ProcessState::kRegistered);
}

TEST(Job, AModelWhoseProbesFailKeepsNoOtherFromBeingReady) {
  World world(two_models());
  world.start();
  world.register_all();
  for (int i = 0; i < 12; ++i) {
    for (const Probe& probe : world.take_probes()) {
      world.tell(probe.model == "small" ? Event{ProbeFailed{probe.probe, "status 503"}}
                                        : Event{ProbeSucceeded{probe.probe, 1}});
    }
    world.pass(milliseconds(200));
    world.beat_all();
  }
  EXPECT_EQ(world.state_of("large-decode-1"), ProcessState::kReady);
  EXPECT_EQ(world.state_of("alone-decode-0"), ProcessState::kReady);
  EXPECT_EQ(world.state_of("small-decode-0"), ProcessState::kRegistered);
  EXPECT_EQ(world.job.state(), JobState::kStarting);
}

TEST(Job, AWorkerOfOneModelThatDiesIsProbedAgainWithItsOwn) {
  World world(two_models());
  world.make_ready();
  world.exit_process("large-prefill-0");
  EXPECT_EQ(world.members(), (Names{"small-prefill-0", "small-decode-0", "large-decode-0",
                                    "large-decode-1", "alone-decode-0"}));
  world.pass(milliseconds(250));
  world.register_process("large-prefill-0");
  ASSERT_NE(world.last<Probe>(), nullptr);
  EXPECT_EQ(world.last<Probe>()->prefill, "large-prefill-0");
  EXPECT_EQ(world.last<Probe>()->decode, "large-decode-0");
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

TEST(Job, AFailedProbeIsTriedAgainAfterAWhile) {
  World world;
  world.start();
  world.register_all();
  world.effects.clear();
  world.tell(ProbeFailed{1, "status 503"});
  EXPECT_EQ(world.last<Probe>(), nullptr);
  EXPECT_EQ(world.job.next_wakeup(), world.now + milliseconds(200));
  world.pass(milliseconds(200));
  ASSERT_NE(world.last<Probe>(), nullptr);
  EXPECT_EQ(world.last<Probe>()->probe, 2U);
}

TEST(Job, TheAnswerOfAnOlderProbeCountsForNothing) {
  World world;
  world.start();
  world.register_all();
  world.tell(ProbeSucceeded{99, 4096});
  EXPECT_EQ(world.job.state(), JobState::kStarting);
}

TEST(Job, AProbeDoesNotMakeTheSuccessorOfADeadWorkerReady) {
  World world;
  world.start();
  world.register_all();
  world.exit_process("decode-0");
  world.pass(milliseconds(250));
  world.register_process("decode-0");
  world.tell(ProbeSucceeded{1, 4096});
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kRegistered);
  EXPECT_EQ(world.state_of("prefill-0"), ProcessState::kReady);
  EXPECT_EQ(world.job.state(), JobState::kStarting);
}

TEST(Job, RegistrationsAreAcknowledgedEachTimeTheyCome) {
  World world;
  world.start();
  world.register_process("prefill-0");
  EXPECT_TRUE(world.sent<net::Acknowledge>("prefill-0"));
  world.effects.clear();
  world.register_process("prefill-0");
  EXPECT_TRUE(world.sent<net::Acknowledge>("prefill-0"));
}

TEST(Job, ALaterRegistrationChangesOnlyTheAdapters) {
  World world;
  world.start();
  for (const char* name : {"router-0", "decode-0"}) {
    world.register_process(name);
  }
  world.effects.clear();
  world.tell(MessageArrived{
      "decode-0", net::Registered{.worker = {.name = "decode-0",
                                             .engine_id = world.process("decode-0").engine_id,
                                             .port = 9,
                                             .adapters = {"sql"}},
                                  .number = 1}});
  const std::vector<Send> sent = world.all<Send>();
  EXPECT_TRUE(std::ranges::any_of(
      sent, [](const Send& send) { return send.message == net::Message(net::Acknowledge{1}); }));
  const auto told = std::ranges::find_if(sent, [](const Send& send) {
    return send.peer == "router-0" && std::holds_alternative<net::Membership>(send.message);
  });
  ASSERT_NE(told, sent.end());
  const auto& workers = std::get<net::Membership>(told->message).workers;
  ASSERT_EQ(workers.size(), 1U);
  EXPECT_EQ(workers[0].adapters, Names{"sql"});
  EXPECT_EQ(workers[0].port, 40001);
}

TEST(Job, NamesAndRolesInsideARegistrationAreNotBelieved) {
  World world;
  world.start();
  world.register_process("router-0");
  world.tell(MessageArrived{
      "decode-0", net::Registered{.worker = {.name = "prefill-0",
                                             .engine_id = world.process("decode-0").engine_id,
                                             .role = net::Role::kPrefill}}});
  EXPECT_EQ(world.members(), (Names{"decode-0"}));
  EXPECT_EQ(world.process("decode-0").entry.role, net::Role::kDecode);
}

TEST(Job, ARegistrationWithAnotherEngineIdIsIgnored) {
  World world;
  world.start();
  world.tell(MessageArrived{"decode-0", net::Registered{.worker = {.engine_id = "decode-0.n.77"}}});
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kStarting);
  world.tell(MessageArrived{"stranger", net::Registered{}});
}

TEST(Job, NodesWithDifferentFilesOfAModelFailAStartingJobAndTheReasonNamesBoth) {
  World world;
  world.start();
  world.register_with_digest("prefill-0", "aaaa");
  world.register_with_digest("decode-0", "bbbb");
  world.exit_process("prefill-0");
  world.exit_process("decode-0");
  world.exit_process("router-0");
  ASSERT_NE(world.last<Finish>(), nullptr);
  EXPECT_EQ(world.last<Finish>()->exit_code, kExitFailed);
  EXPECT_EQ(world.last<Finish>()->reason,
            "the nodes have different files of model m: prefill-0 has digest aaaa, decode-0 has "
            "digest bbbb. Put the same file on all nodes");
  EXPECT_EQ(world.last<Finish>()->culprit, "decode-0");
}

TEST(Job, AWorkerThatComesBackWithAnotherFileOfItsModelIsKilledAndTheJobGoesOn) {
  World world;
  world.start();
  world.register_process("router-0");
  world.register_with_digest("prefill-0", "aaaa");
  world.register_with_digest("decode-0", "aaaa");
  world.answer_probes();
  ASSERT_EQ(world.job.state(), JobState::kReady);

  world.exit_process("decode-0");
  world.pass(milliseconds(250));
  world.register_with_digest("decode-0", "bbbb");
  ASSERT_NE(world.last<SendSignal>(), nullptr);
  EXPECT_EQ(world.last<SendSignal>()->incarnation, world.process("decode-0").incarnation);
  world.exit_process("decode-0");
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kBackoff);
  EXPECT_TRUE(world.process("decode-0").last_exit.starts_with("the nodes have different files"));
  EXPECT_EQ(world.last<Finish>(), nullptr);

  world.pass(seconds(5));
  world.register_with_digest("decode-0", "aaaa");
  world.answer_probes();
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kReady);
}

TEST(Job, ADeadWorkerLeavesTheMembershipAtOnceAndComesBackAsAnother) {
  World world;
  world.make_ready();
  world.exit_process("prefill-0");
  EXPECT_EQ(world.members(), (Names{"decode-0"}));
  EXPECT_EQ(world.state_of("prefill-0"), ProcessState::kBackoff);
  EXPECT_EQ(world.process("prefill-0").last_exit, "signal 9 (Killed)");
  EXPECT_EQ(world.job.next_wakeup(), world.now + milliseconds(250));

  world.effects.clear();
  world.pass(milliseconds(250));
  ASSERT_NE(world.last<Spawn>(), nullptr);
  EXPECT_EQ(world.last<Spawn>()->engine_id, "prefill-0.n.4");
  EXPECT_EQ(world.process("prefill-0").restarts, 1U);
  world.register_process("prefill-0");
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0"}));
  world.answer_probes();
  EXPECT_EQ(world.state_of("prefill-0"), ProcessState::kReady);
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

TEST(Job, ARestartedRouterIsToldTheMembership) {
  World world;
  world.make_ready();
  world.exit_process("router-0");
  world.pass(milliseconds(250));
  world.effects.clear();
  world.register_process("router-0");
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0"}));
}

TEST(Job, ARouterIsToldWhatItHasNotConfirmed) {
  World world;
  world.make_ready();
  const uint64_t confirmed = world.lists.at("router-0").version();
  const std::string first = world.process("decode-0").engine_id;
  world.router_confirms = false;
  world.effects.clear();
  world.exit_process("decode-0");
  EXPECT_EQ(world.last_membership().since, confirmed);
  const std::vector<net::Departure> left = {
      {.name = "decode-0", .engine_id = first, .cause = net::LossCause::kOutside}};
  EXPECT_EQ(world.last_membership().left, left);
  EXPECT_TRUE(world.last_membership().workers.empty());
  EXPECT_EQ(world.members(), Names{"prefill-0"});
  world.pass(seconds(1));
  world.register_process("decode-0");
  // The replacement is there, and the loss of the first one is told again.
  EXPECT_EQ(world.last_membership().since, confirmed);
  EXPECT_EQ(world.last_membership().left, left);
  ASSERT_EQ(world.last_membership().workers.size(), 1U);
  EXPECT_EQ(world.last_membership().workers[0].engine_id, world.process("decode-0").engine_id);
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0"}));
}

TEST(Job, ARouterThatConfirmsNothingIsToldAll) {
  World world;
  world.make_ready();
  world.routers_are_deaf = true;
  world.exit_process("decode-0");
  world.routers_are_deaf = false;
  world.effects.clear();
  world.now += milliseconds(500);
  world.beat("router-0");
  EXPECT_EQ(world.last_membership().since, 0U);
  EXPECT_EQ(world.members(), Names{"prefill-0"});
}

TEST(Job, MembershipVersionsOnlyGrow) {
  World world;
  world.make_ready();
  uint64_t newest = 0;
  for (int round = 0; round < 3; ++round) {
    world.exit_process("decode-0");
    world.pass(seconds(10));
    world.register_process("decode-0");
    for (const Send& send : world.all<Send>()) {
      if (const auto* membership = std::get_if<net::Membership>(&send.message)) {
        EXPECT_GT(membership->version, newest);
        newest = membership->version;
      }
    }
    world.effects.clear();
  }
}

TEST(Job, BackoffDoublesAndIsForgottenAfterHealthyTime) {
  World world;
  world.make_ready();
  const auto wait_after_death = [&] {
    world.exit_process("decode-0");
    const Duration wait = world.process("decode-0").deadline - world.now;
    world.pass(wait);
    return wait;
  };
  EXPECT_EQ(wait_after_death(), milliseconds(250));
  EXPECT_EQ(wait_after_death(), milliseconds(500));
  EXPECT_EQ(wait_after_death(), seconds(1));
  for (int i = 0; i < 10; ++i) {
    // A process that was ready once is always restarted.
    EXPECT_LE(wait_after_death(), seconds(8));
  }
  world.now += seconds(60);
  EXPECT_EQ(wait_after_death(), milliseconds(250));
}

TEST(Job, AProcessThatNeverBecomesReadyFailsTheJob) {
  World world;
  world.start();
  world.exit_process("decode-0", "exit code 1");
  world.pass(milliseconds(250));
  world.exit_process("decode-0", "exit code 1");
  world.pass(milliseconds(500));
  world.effects.clear();
  world.exit_process("decode-0", "exit code 1");
  EXPECT_EQ(world.all<SendSignal>().size(), 3U);  // The job kills the two others, too.
  EXPECT_EQ(world.job.state(), JobState::kDraining);
  world.exit_process("router-0");
  world.exit_process("prefill-0");
  ASSERT_NE(world.last<Finish>(), nullptr);
  EXPECT_EQ(world.last<Finish>()->exit_code, kExitFailed);
  EXPECT_EQ(world.last<Finish>()->reason,
            "decode-0 died 3 times before it was ready, last: exit code 1");
  EXPECT_EQ(world.last<Finish>()->culprit, "decode-0");
  EXPECT_EQ(world.job.state(), JobState::kDone);
  EXPECT_EQ(world.job.next_wakeup(), kNever);
}

TEST(Job, AFailedSpawnCountsAsADeath) {
  World world;
  world.tell(Started{});
  world.tell(SpawnFailed{world.process("decode-0").incarnation, "fork: out of memory"});
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kBackoff);
  EXPECT_EQ(world.process("decode-0").last_exit, "fork: out of memory");
}

TEST(Job, AJobThatIsNotReadyInTimeFailsAndSaysWhatItWaitedFor) {
  World world;
  world.start();
  world.register_process("router-0");
  world.register_process("prefill-0");
  world.now += seconds(59);
  world.beat_all();
  world.pass(seconds(1));
  EXPECT_EQ(world.all<LookAt>().size(), 1U) << "decode-0 may be starved";
  world.pass(seconds(2));
  for (const char* name : {"router-0", "prefill-0", "decode-0"}) {
    world.exit_process(name);
  }
  ASSERT_NE(world.last<Finish>(), nullptr);
  EXPECT_EQ(world.last<Finish>()->reason,
            "not ready after 60 s: router-0 is registered, prefill-0 is registered, decode-0 is "
            "starting");
}

TEST(Job, AJobWhoseWorkerStartsSlowlyForWantOfACoreIsWaitedFor) {
  World world;
  world.start();
  world.register_process("router-0");
  world.register_process("prefill-0");
  const Instant started = world.now;
  const auto pass_until = [&](Duration since) {
    while (world.now < started + since) {
      world.pass(milliseconds(500));
      world.beat_all();
    }
  };
  pass_until(seconds(60));
  world.tell(ProcessSeen{world.process("decode-0").incarnation, {.all_waited_us = 40'000'000}});
  EXPECT_NE(world.job.waiting_for().find("decode-0 is starting and starved of CPU"),
            std::string::npos);
  pass_until(seconds(99));
  EXPECT_EQ(world.job.state(), JobState::kStarting);
  EXPECT_TRUE(world.all<SendSignal>().empty());
  pass_until(seconds(103));
  EXPECT_EQ(world.job.state(), JobState::kDraining) << "its own time is over, too";
}

TEST(Job, ARestartedProcessThatDoesNotRegisterInTimeIsKilled) {
  World world;
  world.make_ready();
  world.exit_process("decode-0");
  world.pass(milliseconds(250));
  const Instant started = world.now;
  world.effects.clear();
  while (world.now < started + seconds(62)) {
    world.pass(seconds(1));
    world.beat_all();
  }
  ASSERT_EQ(world.all<SendSignal>().size(), 1U);  // Only once.
  EXPECT_EQ(world.last<SendSignal>()->incarnation, world.process("decode-0").incarnation);
  world.exit_process("decode-0");
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kBackoff);
}

// The decode worker goes silent; the others beat every half second.
void silence_decode(World& world, Duration duration) {
  for (Duration passed{}; passed < duration; passed += milliseconds(500)) {
    world.now += milliseconds(500);
    world.beat("router-0");
    world.beat("prefill-0");
    world.tell(TimePassed{});
  }
}

TEST(Job, ASilentWorkerLeavesTheMembershipAndReturnsWithItsHeartbeat) {
  World world;
  world.make_ready();
  silence_decode(world, milliseconds(2500));
  EXPECT_FALSE(world.process("decode-0").suspected);
  silence_decode(world, milliseconds(500));
  EXPECT_TRUE(world.process("decode-0").suspected);
  EXPECT_EQ(world.members(), (Names{"prefill-0"}));
  EXPECT_TRUE(world.all<SendSignal>().empty());

  world.effects.clear();
  world.beat("decode-0");
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0"}));
}

TEST(Job, AWorkerThatStaysSilentIsKilledOnceAndReplaced) {
  World world;
  world.make_ready();
  silence_decode(world, seconds(20));
  ASSERT_EQ(world.all<SendSignal>().size(), 1U);
  EXPECT_EQ(world.last<SendSignal>()->signal, Signal::kKill);
  world.exit_process("decode-0");
  world.pass(milliseconds(250));
  EXPECT_EQ(world.last<Spawn>()->name, "decode-0");
}

TEST(Job, SilenceWhileTheLauncherItselfSleptIsForgiven) {
  World world;
  world.make_ready();
  world.pass(seconds(100));  // The launcher was not called when it had asked to be.
  EXPECT_TRUE(world.all<SendSignal>().empty());
  EXPECT_FALSE(world.process("decode-0").suspected);
  world.pass(seconds(3));
  EXPECT_TRUE(world.process("decode-0").suspected);
}

// Its heartbeats continue, because another thread sends them.
TEST(Job, AWorkerWithWorkAndNoProgressIsHungAndItsStacksAreWrittenBeforeItIsKilled) {
  World world;
  world.make_ready();
  const std::string hung = world.process("decode-0").engine_id;
  world.beat_standing_still("decode-0", seconds(59));
  world.beat_standing_still("decode-0", milliseconds(59500));
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kReady);
  world.beat_standing_still("decode-0", seconds(60));
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kReady) << "it may have been stopped";
  world.effects.clear();
  world.beat_standing_still("decode-0", milliseconds(60500));
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kHung);
  EXPECT_EQ(std::string(to_string(world.state_of("decode-0"))), "hung");
  EXPECT_EQ(world.members(), Names{"prefill-0"});
  EXPECT_EQ(world.cause_told(hung), net::LossCause::kHang);
  ASSERT_EQ(world.all<SendSignal>().size(), 1U);
  EXPECT_EQ(world.last<SendSignal>()->signal, Signal::kDumpStacks);
  // It is killed all the same, even if it beats again.
  world.beat("decode-0");
  world.beat_all();
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kHung);
  world.pass(seconds(2));
  ASSERT_EQ(world.all<SendSignal>().size(), 2U);
  EXPECT_EQ(world.last<SendSignal>()->signal, Signal::kKill);
  world.exit_process("decode-0");
  EXPECT_EQ(world.process("decode-0").hangs, 1U);
  EXPECT_EQ(world.process("decode-0").crashes, 0U);
  EXPECT_EQ(world.process("decode-0").last_exit, "hung, then signal 9 (Killed)");
  world.pass(milliseconds(250));
  EXPECT_EQ(world.last<Spawn>()->name, "decode-0");
}

TEST(Job, AWorkerThatGoesOnAfterALongStepIsNotHung) {
  World world;
  world.make_ready();
  for (int i = 0; i < 10; ++i) {
    world.beat_standing_still("decode-0", seconds(100));
    world.beat_standing_still("decode-0", milliseconds(10));
  }
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kReady);
  EXPECT_TRUE(world.all<SendSignal>().empty());
}

TEST(Job, AHungWorkerIsKilledWhenTheJobStops) {
  World world;
  world.make_ready();
  world.beat_standing_still("decode-0", seconds(61));
  world.beat_standing_still("decode-0", seconds(61));
  world.tell(StopAsked{kExitOk});
  EXPECT_EQ(world.last<SendSignal>()->signal, Signal::kKill);
  world.exit_process("decode-0");
  world.exit_process("router-0");
  world.exit_process("prefill-0");
  EXPECT_EQ(world.job.state(), JobState::kDone);
}

TEST(Job, RoutersAreToldWhetherALossWasACrashOrCameFromOutside) {
  World world;
  world.make_ready();
  const std::string first = world.process("decode-0").engine_id;
  world.crash_process("decode-0");
  EXPECT_EQ(world.cause_told(first), net::LossCause::kCrash);
  EXPECT_EQ(world.process("decode-0").crashes, 1U);
  world.pass(seconds(1));
  world.register_process("decode-0");
  const std::string second = world.process("decode-0").engine_id;
  world.exit_process("decode-0");
  EXPECT_EQ(world.cause_told(second), net::LossCause::kOutside);
  EXPECT_EQ(world.process("decode-0").crashes, 1U);
}

// A process that dumps core is silent for a while.
TEST(Job, TheCauseOfALossIsToldWhenItComesLaterThanTheSilence) {
  World world;
  world.make_ready();
  const std::string lost = world.process("decode-0").engine_id;
  silence_decode(world, seconds(3));
  EXPECT_EQ(world.cause_told(lost), net::LossCause::kUnknown);
  world.effects.clear();
  world.crash_process("decode-0");
  EXPECT_EQ(world.cause_told(lost), net::LossCause::kCrash);
}

// The message about the loss may be lost, or the router may be new.
TEST(Job, ACrashIsToldAgainWhereEverythingIs) {
  World world;
  world.make_ready();
  const std::string lost = world.process("decode-0").engine_id;
  world.crash_process("decode-0");
  world.pass(seconds(1));
  world.register_process("decode-0");
  world.exit_process("router-0");
  world.pass(seconds(1));
  world.register_process("router-0");
  EXPECT_EQ(world.last_membership().since, 0U);
  EXPECT_EQ(world.cause_told(lost), net::LossCause::kCrash);
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0"}));
}

TEST(Job, HeartbeatsArePassedOnToRoutersAsLoad) {
  World world;
  world.make_ready();
  world.tell(MessageArrived{"decode-0",
                            net::HeartbeatSent{.engine_id = world.process("decode-0").engine_id,
                                               .load = {.requests_running = 5}}});
  ASSERT_TRUE(world.sent<net::LoadReported>("router-0"));
  EXPECT_EQ(std::get<net::LoadReported>(world.last<Send>()->message).load.requests_running, 5U);
  world.effects.clear();
  world.beat("router-0");
  EXPECT_TRUE(world.all<Send>().empty());
}

TEST(Job, StopDrainsRoutersFirstThenWorkers) {
  World world;
  world.make_ready();
  world.tell(StopAsked{kExitOk});
  EXPECT_NE(world.last<CloseDoors>(), nullptr);
  EXPECT_TRUE(world.sent<net::Drain>("router-0"));
  EXPECT_FALSE(world.sent<net::Drain>("decode-0"));

  world.effects.clear();
  world.now += seconds(10);
  world.exit_process("router-0", "exit code 0");
  ASSERT_TRUE(world.sent<net::Drain>("decode-0"));
  EXPECT_TRUE(world.sent<net::Drain>("prefill-0"));
  EXPECT_EQ(std::get<net::Drain>(world.last<Send>()->message).deadline_ms, 20000U);

  world.exit_process("prefill-0", "exit code 0");
  EXPECT_EQ(world.last<Finish>(), nullptr);
  world.exit_process("decode-0", "exit code 0");
  ASSERT_NE(world.last<Finish>(), nullptr);
  EXPECT_EQ(world.last<Finish>()->exit_code, kExitOk);
  EXPECT_EQ(world.last<Finish>()->reason, "");
  EXPECT_EQ(world.job.state(), JobState::kDone);
}

TEST(Job, WhatDoesNotDrainInTimeIsKilled) {
  World world;
  world.make_ready();
  world.tell(StopAsked{kExitInterrupted});
  EXPECT_EQ(world.job.next_wakeup(), world.now + seconds(32));
  world.pass(seconds(32));
  EXPECT_EQ(world.all<SendSignal>().size(), 3U);
  for (const char* name : {"router-0", "prefill-0", "decode-0"}) {
    world.exit_process(name);
  }
  ASSERT_NE(world.last<Finish>(), nullptr);
  EXPECT_EQ(world.last<Finish>()->exit_code, kExitInterrupted);
}

TEST(Job, ASecondStopKillsAtOnce) {
  World world;
  world.make_ready();
  world.tell(StopAsked{kExitOk});
  world.tell(StopAsked{kExitInterrupted});
  ASSERT_EQ(world.all<SendSignal>().size(), 3U);
  EXPECT_EQ(world.last<SendSignal>()->signal, Signal::kKill);
  for (const char* name : {"router-0", "prefill-0", "decode-0"}) {
    world.exit_process(name);
  }
  EXPECT_EQ(world.last<Finish>()->exit_code, kExitOk);  // As asked first.
}

TEST(Job, AStopThatKeepsWorkersWarmEndsTheRoutersAndNothingElse) {
  World world;
  world.make_ready();
  world.tell(StopAsked{kExitInterrupted, true});
  EXPECT_TRUE(world.sent<net::Drain>("router-0"));
  EXPECT_TRUE(world.all<SendSignal>().empty());
  world.exit_process("router-0", "exit code 0");
  EXPECT_FALSE(world.sent<net::Drain>("decode-0"));
  EXPECT_FALSE(world.sent<net::Drain>("prefill-0"));
  EXPECT_EQ(world.state_of("prefill-0"), ProcessState::kReady);
  ASSERT_NE(world.last<Finish>(), nullptr);
  EXPECT_TRUE(world.last<Finish>()->keeps_warm);
  EXPECT_EQ(world.last<Finish>()->exit_code, kExitInterrupted);
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kReady);
}

TEST(Job, AWorkerThatDiesWhileOthersAreKeptWarmIsNotStartedAgain) {
  World world;
  world.make_ready();
  world.tell(StopAsked{kExitOk, true});
  world.effects.clear();
  world.exit_process("decode-0");
  world.pass(seconds(5));
  EXPECT_TRUE(world.all<Spawn>().empty());
  world.exit_process("router-0", "exit code 0");
  ASSERT_NE(world.last<Finish>(), nullptr);
  EXPECT_TRUE(world.last<Finish>()->keeps_warm);
}

TEST(Job, ASecondStopEndsWarmWorkersToo) {
  World world;
  world.make_ready();
  world.tell(StopAsked{kExitOk, true});
  world.tell(StopAsked{kExitOk, true});
  EXPECT_EQ(world.all<SendSignal>().size(), 3U);
  for (const char* name : {"router-0", "prefill-0", "decode-0"}) {
    world.exit_process(name);
  }
  EXPECT_FALSE(world.last<Finish>()->keeps_warm);
}

TEST(Job, RoutersThatDoNotDrainInTimeAreKilledAndWarmWorkersAreNot) {
  World world;
  world.make_ready();
  world.tell(StopAsked{kExitOk, true});
  world.pass(seconds(32));
  ASSERT_EQ(world.all<SendSignal>().size(), 1U);
  world.exit_process("router-0");
  EXPECT_TRUE(world.last<Finish>()->keeps_warm);
}

// Nobody knows whether its workers work.
TEST(Job, AJobThatIsNotReadyKeepsNothingWarm) {
  World world;
  world.start();
  world.tell(StopAsked{kExitOk, true});
  for (const char* name : {"router-0", "prefill-0", "decode-0"}) {
    world.exit_process(name);
  }
  EXPECT_FALSE(world.last<Finish>()->keeps_warm);
}

TEST(Job, StopDuringStartEndsWhatIsStartingAndDoesNotStartWhatWaits) {
  World world;
  world.start();
  world.register_process("router-0");
  world.exit_process("decode-0");  // It is in backoff now.
  world.effects.clear();
  world.tell(StopAsked{kExitInterrupted});
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kExited);
  ASSERT_EQ(world.all<SendSignal>().size(), 1U);
  EXPECT_EQ(world.last<SendSignal>()->signal, Signal::kTerminate);
  EXPECT_TRUE(world.sent<net::Drain>("router-0"));
  world.exit_process("router-0");
  world.exit_process("prefill-0");
  EXPECT_EQ(world.last<Finish>()->exit_code, kExitInterrupted);
  EXPECT_TRUE(world.all<Spawn>().empty());
}

TEST(Job, ADeathWhileDrainingIsNotReplaced) {
  World world;
  world.make_ready();
  world.tell(StopAsked{kExitOk});
  world.exit_process("decode-0");
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kExited);
  world.pass(seconds(5));
  EXPECT_TRUE(world.all<Spawn>().empty());
}

// --- processes that come and go

// Two workers of each role.
std::vector<ProcessPlan> two_of_each() {
  return {{"router-0", net::Role::kRouter},
          {"prefill-0", net::Role::kPrefill},
          {"prefill-1", net::Role::kPrefill},
          {"decode-0", net::Role::kDecode},
          {"decode-1", net::Role::kDecode}};
}

TEST(Job, AnAddedProcessStartsAndIsProvedWhileTheOthersServe) {
  World world;
  world.make_ready();
  world.tell(sizes(1, 2));
  ASSERT_NE(world.last<Spawn>(), nullptr);
  EXPECT_EQ(world.last<Spawn>()->name, "decode-1");
  EXPECT_EQ(world.last<Spawn>()->role, net::Role::kDecode);
  world.register_process("decode-1");
  world.answer_probes();
  EXPECT_EQ(world.state_of("decode-1"), ProcessState::kReady);
  EXPECT_EQ(world.members(), (Names{"prefill-0", "decode-0", "decode-1"}));
}

TEST(Job, ASizeThatIsToldTwiceAddsOneWorker) {
  World world;
  world.make_ready();
  world.tell(sizes(1, 2));
  world.tell(sizes(1, 2));
  EXPECT_EQ(world.all<Spawn>().size(), 1U);
  EXPECT_EQ(world.job.processes().size(), 4U);
}

TEST(Job, ARetiredWorkerGetsNoRequestsThenDrainsThenIsGone) {
  World world(two_of_each());
  world.make_ready();
  const Incarnation retired = world.process("decode-1").incarnation;
  world.router_confirms = false;
  world.tell(sizes(2, 1));
  EXPECT_EQ(world.lists["router-0"].serving().size(), 3U);
  EXPECT_EQ(world.lists["router-0"].workers().size(), 4U) << "requests that run there go on";
  EXPECT_FALSE(world.sent<net::Drain>("decode-1")) << "the router may still send requests to it";
  world.confirm(world.version_sent);
  EXPECT_TRUE(world.sent<net::Drain>("decode-1"));
  world.router_confirms = true;
  world.effects.clear();
  world.tell(ProcessExited{retired, "exit code 0"});
  EXPECT_EQ(world.job.find("decode-1"), nullptr);
  world.pass(seconds(100));
  EXPECT_TRUE(world.all<Spawn>().empty());
  EXPECT_EQ(world.lists["router-0"].workers().size(), 3U);
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

TEST(Job, AWorkerThatIsToLeaveEndsWithItsJobThoughNoRouterHasConfirmedThatItLeaves) {
  World world(two_of_each());
  world.make_ready();
  world.router_confirms = false;
  world.tell(sizes(2, 1));
  world.tell(StopAsked{kExitOk});
  world.exit_process("router-0", "exit code 0");
  EXPECT_TRUE(world.sent<net::Drain>("decode-1"));
}

TEST(Job, AWorkerThatDrainsHasNoLongerThanItsJobOnceThatStops) {
  World world(two_of_each());
  world.make_ready();
  world.tell(sizes(2, 1));
  world.effects.clear();
  world.tell(StopAsked{kExitOk});
  ASSERT_TRUE(world.sent<net::Drain>("decode-1"));
  for (const Send& send : world.all<Send>()) {
    EXPECT_EQ(std::get<net::Drain>(send.message).deadline_ms, 30000U) << send.peer;
  }
}

TEST(Job, ARouterThatDoesNotConfirmDelaysARetirementOnlyForAWhile) {
  World world(two_of_each());
  world.make_ready();
  world.router_confirms = false;
  world.tell(sizes(2, 1));
  world.pass(seconds(2));
  EXPECT_TRUE(world.sent<net::Drain>("decode-1"));
}

TEST(Job, AWorkerThatIsKilledWhileItRetiresIsNotStartedAgain) {
  World world(two_of_each());
  world.make_ready();
  world.tell(sizes(2, 1));
  world.exit_process("decode-1");
  EXPECT_EQ(world.job.find("decode-1"), nullptr);
  world.pass(seconds(100));
  EXPECT_TRUE(world.all<Spawn>().empty());
}

TEST(Job, ARetiredNameCanBeUsedAgain) {
  World world(two_of_each());
  world.make_ready();
  world.tell(sizes(2, 1));
  world.exit_process("decode-1");
  world.tell(sizes(2, 2));
  world.register_process("decode-1");
  world.answer_probes();
  EXPECT_EQ(world.state_of("decode-1"), ProcessState::kReady);
}

TEST(Job, AWorkerChangesItsRoleByDrainingAndStartingAgain) {
  World world(two_of_each());
  world.make_ready();
  world.tell(sizes(1, 3));
  EXPECT_TRUE(world.sent<net::Drain>("prefill-1"));
  EXPECT_EQ(world.process("prefill-1").role, net::Role::kPrefill);
  world.effects.clear();
  world.exit_process("prefill-1", "exit code 0");
  ASSERT_NE(world.last<Spawn>(), nullptr);
  EXPECT_EQ(world.last<Spawn>()->name, "prefill-1");
  EXPECT_EQ(world.last<Spawn>()->role, net::Role::kDecode);
  world.register_process("prefill-1");
  world.answer_probes();
  EXPECT_EQ(world.state_of("prefill-1"), ProcessState::kReady);
  EXPECT_EQ(world.process("prefill-1").entry.role, net::Role::kDecode);
}

TEST(Job, AWorkerThatCanChangesItsRoleWithoutANewStart) {
  World world(two_of_each());
  world.make_ready();
  const Incarnation before = world.process("prefill-1").incarnation;
  world.tell(sizes(1, 3));
  const std::string next = world.process("prefill-1").next_engine_id;
  ASSERT_FALSE(next.empty());
  world.effects.clear();
  world.tell(
      MessageArrived{"prefill-1", net::Registered{.worker = {.engine_id = next, .port = 4}}});
  EXPECT_EQ(world.last<Spawn>(), nullptr);
  EXPECT_EQ(world.process("prefill-1").role, net::Role::kDecode);
  EXPECT_EQ(world.state_of("prefill-1"), ProcessState::kRegistered);
  world.answer_probes();
  EXPECT_EQ(world.state_of("prefill-1"), ProcessState::kReady);
  EXPECT_EQ(world.process("prefill-1").incarnation, before);
  EXPECT_EQ(world.process("prefill-1").engine_id, next);
}

TEST(Job, AWorkerThatChangesItsRoleWhileItsJobStopsEnds) {
  World world(two_of_each());
  world.make_ready();
  world.tell(sizes(1, 3));
  const std::string next = world.process("prefill-1").next_engine_id;
  world.effects.clear();
  world.tell(StopAsked{kExitOk});
  const auto plain_drains = [&] {
    const auto sends = world.all<Send>();
    return std::ranges::count_if(sends, [](const Send& send) {
      const auto* drain = std::get_if<net::Drain>(&send.message);
      return send.peer == "prefill-1" && drain != nullptr && drain->next.engine_id.empty();
    });
  };
  EXPECT_EQ(plain_drains(), 1);
  world.tell(
      MessageArrived{"prefill-1", net::HeartbeatSent{.name = "prefill-1", .engine_id = next}});
  EXPECT_EQ(plain_drains(), 2) << "it had changed its role before it heard that";
}

TEST(Job, AWorkerThatStopsSendingHeartbeatsWhileItDrainsIsKilled) {
  World world(two_of_each());
  world.make_ready();
  world.tell(sizes(2, 1));
  world.effects.clear();
  for (int i = 0; i < 80; ++i) {
    world.beat_all();
    world.pass(milliseconds(250));
  }
  ASSERT_EQ(world.all<SendSignal>().size(), 1U);
  EXPECT_EQ(world.process("decode-1").killed_for, "silent");
}

TEST(Job, AWorkerThatHasChangedItsRoleIsHeardByItsNewName) {
  World world(two_of_each());
  world.make_ready();
  world.tell(sizes(1, 3));
  const std::string next = world.process("prefill-1").next_engine_id;
  for (int i = 0; i < 80; ++i) {
    world.beat_all();
    world.tell(
        MessageArrived{"prefill-1", net::HeartbeatSent{.name = "prefill-1", .engine_id = next}});
    world.pass(milliseconds(250));
  }
  EXPECT_TRUE(world.all<SendSignal>().empty());
}

// --- weights of a rollout job

JobSetting rollout() { return {.weights = {.path = {}, .version = "default", .digest = {}}}; }

void register_with(World& world, const std::string& name, const std::string& engine_id,
                   const net::WeightSource& weights) {
  world.tell(MessageArrived{name, net::Registered{.worker = {.engine_id = engine_id,
                                                             .port = 4,
                                                             .model_digest = weights.digest,
                                                             .weight_version = weights.version}}});
}

struct RolloutWorld : World {
  explicit RolloutWorld(std::vector<ProcessPlan> plan) : World(std::move(plan), rollout()) {
    start();
    for (const Process& each : job.processes()) {
      register_with(*this, std::string(each.name), std::string(each.engine_id), first);
    }
    answer_probes();
    EXPECT_EQ(job.state(), JobState::kReady);
    effects.clear();
  }
  // All workers have prepared it, except for `without`.
  void choose(const net::WeightSource& weights, const std::string& without = "") {
    WeightsChosen chosen{.weights = weights, .prepared = {}};
    for (const Process& each : job.processes()) {
      if (!each.is_router() && each.name != without) {
        chosen.prepared.emplace(each.engine_id, 7);
      }
    }
    tell(chosen);
  }
  const net::WeightSource first{.path = {}, .version = "default", .digest = "d0"};
  const net::WeightSource next{.path = "/w/1.gguf", .version = "step-1", .digest = "d1"};
};

TEST(Job, WorkersTakeNewWeightsInPlaceAndNoneServesWithTheOld) {
  RolloutWorld world(two_of_each());
  world.choose(world.next);
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    EXPECT_EQ(world.state_of(name), ProcessState::kDraining) << name;
    const auto sends = world.all<Send>();
    const auto drain = std::ranges::find_if(sends, [&](const Send& send) {
      return send.peer == name && std::holds_alternative<net::Drain>(send.message);
    });
    ASSERT_NE(drain, sends.end()) << name;
    const auto& told = std::get<net::Drain>(drain->message).next;
    EXPECT_EQ(told.weights_order, 7U);
    EXPECT_EQ(told.weight_version, "step-1");
    EXPECT_EQ(told.role, world.process(name).role);
  }
  EXPECT_TRUE(world.lists.at("router-0").serving().empty());
  world.effects.clear();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    register_with(world, name, world.process(name).next_engine_id, world.next);
  }
  EXPECT_EQ(world.last<Spawn>(), nullptr);
  world.answer_probes();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    EXPECT_EQ(world.state_of(name), ProcessState::kReady) << name;
    EXPECT_EQ(world.process(name).entry.weight_version, "step-1");
  }
}

TEST(Job, AWorkerThatDidNotPrepareStartsAgainWithTheNewWeights) {
  RolloutWorld world(two_of_each());
  world.choose(world.next, "decode-1");
  world.exit_process("decode-1", "exit code 0");
  ASSERT_NE(world.last<Spawn>(), nullptr);
  EXPECT_EQ(world.last<Spawn>()->name, "decode-1");
  EXPECT_EQ(world.last<Spawn>()->weights, world.next);
}

TEST(Job, AWorkerThatIsKilledWhileItTakesNewWeightsStartsAgainWithThem) {
  RolloutWorld world(two_of_each());
  world.choose(world.next);
  world.exit_process("prefill-0");
  ASSERT_NE(world.last<Spawn>(), nullptr);
  EXPECT_EQ(world.last<Spawn>()->weights, world.next);
  register_with(world, "prefill-0", world.process("prefill-0").engine_id, world.next);
  EXPECT_EQ(world.state_of("prefill-0"), ProcessState::kRegistered);
}

TEST(Job, AWorkerThatRegistersWithOtherWeightsIsNoMember) {
  RolloutWorld world(two_of_each());
  world.exit_process("decode-1");  // It starts with the old weights while new ones are chosen.
  world.pass(kTiming.restart.backoff_min);
  const std::string old = world.process("decode-1").engine_id;
  world.choose(world.next, "decode-1");
  register_with(world, "decode-1", old, world.first);
  EXPECT_NE(world.state_of("decode-1"), ProcessState::kRegistered);
  world.exit_process("decode-1");
  ASSERT_NE(world.last<Spawn>(), nullptr);
  EXPECT_EQ(world.last<Spawn>()->weights, world.next);
  // So is one with the right name for other bytes.
  net::WeightSource changed = world.next;
  changed.digest = "d2";
  register_with(world, "decode-1", world.process("decode-1").engine_id, changed);
  EXPECT_EQ(world.state_of("decode-1"), ProcessState::kStarting);
  EXPECT_EQ(world.last<SendSignal>()->signal, Signal::kKill);
}

TEST(Job, AProcessThatIsAddedStartsWithTheWeightsThatWereChosenLast) {
  RolloutWorld world(two_of_each());
  world.choose(world.next);
  world.tell(sizes(2, 3));
  EXPECT_EQ(world.last<Spawn>()->weights, world.next);
}

TEST(Job, TheNextLauncherKnowsTheWeights) {
  RolloutWorld world(two_of_each());
  world.choose(world.next);
  EXPECT_EQ(world.job.record().weights, world.next);
  const Job after({}, kTiming, "n", {.record = world.job.record()});
  EXPECT_EQ(after.weights(), world.next);
}

TEST(Job, AnEngineIdThatNobodyAskedForChangesNoRole) {
  World world(two_of_each());
  world.make_ready();
  world.tell(sizes(1, 3));
  world.tell(
      MessageArrived{"prefill-1", net::Registered{.worker = {.engine_id = "other", .port = 4}}});
  EXPECT_EQ(world.process("prefill-1").role, net::Role::kPrefill);
  EXPECT_EQ(world.state_of("prefill-1"), ProcessState::kDraining);
}

// A worker that never gets ready.
TEST(Job, AStartingJobIsReadyWithoutAWorkerThatDiesIfItsRoleHasAnother) {
  World world(two_of_each());
  world.start();
  for (const char* name : {"router-0", "prefill-0", "prefill-1", "decode-0"}) {
    world.register_process(name);
  }
  for (int death = 0; death < 2; ++death) {
    world.exit_process("decode-1", "exit code 1");
    world.pass(seconds(2));
    world.beat_all();
  }
  world.answer_probes();
  EXPECT_EQ(world.job.state(), JobState::kStarting) << "it may still come";
  world.exit_process("decode-1", "exit code 1");
  EXPECT_EQ(world.job.state(), JobState::kReady);
  EXPECT_NE(world.last<ReportReady>(), nullptr);
  // It is tried again, and joins when it can.
  world.effects.clear();
  world.pass(seconds(2));
  ASSERT_NE(world.last<Spawn>(), nullptr);
  world.register_process("decode-1");
  world.answer_probes();
  EXPECT_EQ(world.state_of("decode-1"), ProcessState::kReady);
}

TEST(Job, AStartingJobFailsWhenAllWorkersOfARoleDie) {
  World world(two_of_each());
  world.start();
  for (int death = 0; death < 3; ++death) {
    world.exit_process("decode-0", "exit code 1");
    world.exit_process("decode-1", "exit code 2");
    if (death < 2) {
      EXPECT_EQ(world.job.state(), JobState::kStarting);
      world.pass(seconds(2));
    }
  }
  EXPECT_EQ(world.job.state(), JobState::kDraining);
}

TEST(Job, AtItsDeadlineAJobIsReadyIfEveryRoleServes) {
  World world(two_of_each());
  world.start();
  for (const char* name : {"router-0", "prefill-0", "decode-0", "decode-1"}) {
    world.register_process(name);
  }
  world.answer_probes();
  EXPECT_EQ(world.job.state(), JobState::kStarting) << world.job.waiting_for();
  world.now += seconds(59);
  world.beat_all();
  world.pass(seconds(1));
  EXPECT_EQ(world.job.state(), JobState::kReady);
}

TEST(Job, AWorkerThatNeverGetsReadyDoesNotEndAReadyJob) {
  World world;
  world.make_ready();
  world.tell(sizes(1, 2));
  for (int death = 0; death < 10; ++death) {
    world.exit_process("decode-1", "exit code 1");
    world.pass(seconds(8));
    world.beat_all();
    EXPECT_EQ(world.job.state(), JobState::kReady);
  }
  EXPECT_EQ(world.state_of("decode-1"), ProcessState::kStarting) << "it is tried again";
}

TEST(Job, AStarvedWorkerWhoseProbesFailIsNotKilled) {
  World world;
  world.make_ready();
  world.tell(sizes(1, 2));
  world.register_process("decode-1");
  for (int second = 0; second < 100; ++second) {
    for (const Probe& probe : world.all<Probe>()) {
      world.tell(ProbeFailed{probe.probe, "no answer for 30 s"});
    }
    world.pass(seconds(1));
    for (const char* name : {"router-0", "prefill-0", "decode-0"}) {
      world.beat(name);
    }
    world.tell(MessageArrived{"decode-1",
                              net::HeartbeatSent{.name = "decode-1",
                                                 .engine_id = world.process("decode-1").engine_id,
                                                 .starved_permille = 800}});
  }
  EXPECT_TRUE(world.all<SendSignal>().empty());
}

TEST(Job, AWorkerWhoseProbesFailForLongIsKilledAndTriedAgain) {
  World world;
  world.make_ready();
  world.tell(sizes(1, 2));
  world.register_process("decode-1");
  const Instant registered = world.now;
  while (world.all<SendSignal>().empty() && world.now < registered + seconds(100)) {
    for (const Probe& probe : world.all<Probe>()) {
      world.tell(ProbeFailed{probe.probe, "status 503"});
    }
    world.pass(seconds(1));
    world.beat_all();
  }
  EXPECT_GE(world.now, registered + kTiming.start_timeout);
  ASSERT_FALSE(world.all<SendSignal>().empty());
  world.exit_process("decode-1");
  EXPECT_EQ(world.process("decode-1").last_exit,
            "no probe went through it (status 503), then signal 9 (Killed)");
  EXPECT_EQ(world.state_of("decode-1"), ProcessState::kBackoff);
}

TEST(Job, RoutersLearnThatAWorkerServesOnlyAfterItsProbe) {
  World world;
  world.start();
  world.register_all();
  EXPECT_TRUE(world.lists["router-0"].serving().empty());
  EXPECT_EQ(world.lists["router-0"].workers().size(), 2U);
  world.tell(ProbeSucceeded{1, 4096});
  EXPECT_EQ(world.lists["router-0"].serving().size(), 2U);
}

// --- nodes

class NodeWorld : public World {
 public:
  NodeWorld()
      : World({{"router-0", net::Role::kRouter, "", {}, {.node = "a"}},
               {"prefill-0", net::Role::kPrefill, "", {.cores = 1}, {.node = "a"}},
               {"decode-0", net::Role::kDecode, "", {.cores = 1, .gpus = 1}, {"b", {"0"}}}},
              {.nodes = {{.name = "a", .cores = 2}, {.name = "b", .cores = 2, .gpus = {"0"}}}}) {}
};

TEST(Job, WhatRanOnALostNodeStartsOnAnother) {
  NodeWorld world;
  world.make_ready();
  world.tell(NodeJoined{{.name = "c", .cores = 8, .gpus = {"5"}}});
  world.tell(NodeLost{"b", "no answer"});
  EXPECT_TRUE(world.all<SendSignal>().empty()) << "nobody is there to be killed";
  EXPECT_EQ(world.members(), Names{"prefill-0"});
  EXPECT_EQ(world.process("decode-0").last_exit, "node b is lost: no answer");
  world.pass(milliseconds(250));
  ASSERT_NE(world.last<Spawn>(), nullptr);
  EXPECT_EQ(world.last<Spawn>()->place, (Place{"c", {"5"}}));
}

TEST(Job, AProcessWithoutAPlaceWaitsForANode) {
  NodeWorld world;
  world.make_ready();
  world.tell(NodeLost{"b", "no answer"});
  world.pass(milliseconds(250));
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kWaiting);
  EXPECT_EQ(world.job.waiting_for(),
            "decode-0 is waiting for a node: node a comes nearest: it lacks 1 GPU");
  world.tell(NodeJoined{{.name = "d", .cores = 8}});
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kWaiting) << "it has no GPU";
  world.tell(NodeJoined{{.name = "b", .cores = 2, .gpus = {"0"}}});
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kStarting);
}

// Three nodes with room for two workers each; two more workers wait.
class GroupWorld : public World {
 public:
  static Demand demand(const std::string& role, uint32_t gpus = 0) {
    return {.cores = 1, .gpus = gpus, .role = role, .model = "m"};
  }
  static Node node(const std::string& name, std::vector<std::string> gpus = {}) {
    return {.name = name, .cores = 2, .gpus = std::move(gpus), .cluster = "east"};
  }
  static std::vector<ProcessPlan> plan() {
    std::vector<ProcessPlan> plan = {{"router-0", net::Role::kRouter, "", {}, {.node = "a"}}};
    for (const char* name : {"prefill-0", "prefill-1", "prefill-2"}) {
      plan.push_back({name, net::Role::kPrefill, "m", demand("prefill")});
    }
    for (const char* name : {"decode-0", "decode-1", "decode-2"}) {
      plan.push_back({name, net::Role::kDecode, "m", demand("decode")});
    }
    return plan;
  }
  static std::vector<JobGroup> groups(uint32_t workers_min, uint32_t prefill, uint32_t decode) {
    return {{"prefill", net::Role::kPrefill, "m", demand("prefill"), workers_min, "", prefill},
            {"decode", net::Role::kDecode, "m", demand("decode", 1), workers_min, "", decode}};
  }
  explicit GroupWorld(uint32_t workers_min = 1)
      : World(plan(), {.nodes = {node("a"), node("b")}, .groups = groups(workers_min, 3, 3)}) {}
  Names waiting() const {
    Names names;
    for (const Process& process : job.processes()) {
      if (process.state == ProcessState::kWaiting) {
        names.push_back(process.name);
      }
    }
    return names;
  }
};

TEST(Job, IsReadyWithItsMinimumWhileOthersWaitForNodes) {
  GroupWorld world;
  world.make_ready();
  EXPECT_EQ(world.waiting(), (Names{"decode-1", "decode-2"}));
  GroupWorld strict(2);
  strict.start();
  strict.register_all();
  EXPECT_EQ(strict.job.state(), JobState::kStarting) << "it has one decode worker, and wants two";
}

// Two cores for one worker of each role.
TEST(Job, RoutersAreToldWhichWorkersShareTheirCoresAndWhenThatChanges) {
  const auto demand = [](const char* role) {
    return Demand{.cores = 1, .lends = true, .role = role, .model = "m"};
  };
  World world({{"router-0", net::Role::kRouter, "", {}, {.node = "a"}},
               {"prefill-0", net::Role::kPrefill, "m", demand("prefill"), {.node = "a"}},
               {"decode-0", net::Role::kDecode, "m", demand("decode"), {.node = "a"}}},
              {.nodes = {{.name = "a", .cores = 2}}});
  world.make_ready();
  EXPECT_TRUE(world.process("decode-0").shares_cores);
  const auto told = [&] {
    std::map<std::string, bool> shares;
    for (const net::WorkerEntry& worker : world.last_membership().workers) {
      shares[worker.name] = worker.shares_cores;
    }
    return shares;
  };
  world.tell(NodeJoined{{.name = "a", .cores = 3}});
  EXPECT_FALSE(told().at("decode-0")) << "a core more";
  world.tell(NodeJoined{{.name = "a", .cores = 2}});
  EXPECT_TRUE(told().at("decode-0"));
  world.tell(sizes(0, 1, demand("decode"), "m"));
  world.exit_process("prefill-0");
  EXPECT_FALSE(told().at("decode-0")) << "it is alone";
}

TEST(Job, WaitingProcessesTakeTurnsWhenANodeJoins) {
  GroupWorld world;
  world.start();
  world.tell(NodeLost{"b", "no answer"});
  world.tell(NodeLost{"a", "no answer"});
  world.pass(milliseconds(250));
  EXPECT_EQ(world.waiting().size(), 7U);
  world.tell(NodeJoined{GroupWorld::node("c")});
  EXPECT_EQ(world.waiting(), (Names{"prefill-1", "prefill-2", "decode-1", "decode-2"}));
}

TEST(Job, AProcessThatGoesMakesRoomForOneThatWaits) {
  GroupWorld world;
  world.make_ready();
  world.exit_process("prefill-2");  // One that does not serve leaves first, and changes no role.
  world.tell(GroupsChanged{GroupWorld::groups(1, 2, 3)});
  EXPECT_EQ(world.job.find("prefill-2"), nullptr);
  EXPECT_EQ(world.waiting(), Names{"decode-2"});
}

TEST(Job, AWorkerWithANewRoleNeedsWhatThatRoleNeeds) {
  GroupWorld world;
  world.make_ready();
  world.tell(GroupsChanged{GroupWorld::groups(1, 2, 4)});
  world.exit_process("prefill-2");
  EXPECT_EQ(world.state_of("prefill-2"), ProcessState::kWaiting) << "no node has a GPU";
  EXPECT_EQ(world.waiting(), (Names{"prefill-2", "decode-2"})) << "its core is free";
  world.tell(NodeJoined{GroupWorld::node("g", {"7"})});
  EXPECT_EQ(world.process("prefill-2").place, (Place{"g", {"7"}}));
}

TEST(Job, AnExitToldAfterItsNodeWasLostCountsOnce) {
  NodeWorld world;
  world.make_ready();
  const Incarnation lost = world.process("prefill-0").incarnation;
  world.tell(NodeLost{"a", "no answer"});
  world.tell(ProcessExited{lost, "signal 9 (Killed)", false, "a"});
  EXPECT_EQ(world.process("prefill-0").last_exit, "node a is lost: no answer");
}

// --- nodes that are not trusted

class TrustWorld : public World {
 public:
  explicit TrustWorld(uint32_t cores_of_b)
      : World({{"router-0", net::Role::kRouter, "", {}, {.node = "a"}},
               {"prefill-0", net::Role::kPrefill, "", {.cores = 1}, {.node = "a"}},
               {"decode-0", net::Role::kDecode, "", {.cores = 1}, {.node = "a"}}},
              {.nodes = {{.name = "a", .cores = 4}, {.name = "b", .cores = cores_of_b}}}) {}

  // Returns the node where it starts again.
  std::string dies(const std::string& name) {
    crash_process(name);
    pass(seconds(10));
    return process(name).place.node;
  }
};

TEST(Job, AProcessThatDiesAgainAndAgainStartsOnAnotherNode) {
  TrustWorld world(4);
  world.make_ready();
  EXPECT_EQ(world.dies("prefill-0"), "a");
  EXPECT_EQ(world.dies("prefill-0"), "a");
  EXPECT_EQ(world.dies("prefill-0"), "b");
  EXPECT_EQ(world.process("decode-0").place.node, "a") << "what runs stays";
  EXPECT_EQ(world.dies("decode-0"), "b") << "the node is not trusted, whoever died there";
  EXPECT_EQ(world.dies("router-0"), "a") << "its door is there";
  world.pass(minutes(60));
  EXPECT_EQ(world.dies("prefill-0"), "b");
  EXPECT_EQ(world.dies("prefill-0"), "b");
  EXPECT_EQ(world.dies("prefill-0"), "a") << "it is trusted again";
}

TEST(Job, TheOnlyNodeWithRoomIsNeverRefused) {
  TrustWorld world(0);
  world.make_ready();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(world.dies("prefill-0"), "a");
    EXPECT_EQ(world.state_of("prefill-0"), ProcessState::kStarting);
  }
}

TEST(Job, WhereAllNodesAreEquallyBadAProcessStays) {
  TrustWorld world(4);
  world.make_ready();
  world.tell(NodeBlamed{"a"});
  world.tell(NodeBlamed{"b"});
  EXPECT_EQ(world.dies("prefill-0"), "a");
}

TEST(Job, AReplacedWorkerFinishesItsRequestsAndStartsOnAnotherNode) {
  TrustWorld world(4);
  world.make_ready();
  const std::string before = world.process("decode-0").engine_id;
  world.tell(ReplaceAsked{"decode-0"});
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kDraining);
  ASSERT_NE(world.last<Send>(), nullptr);
  const auto drains = world.all<Send>();
  EXPECT_TRUE(std::ranges::any_of(drains, [](const Send& send) {
    const auto* drain = std::get_if<net::Drain>(&send.message);
    return send.peer == "decode-0" && drain != nullptr && drain->next.engine_id.empty();
  }));
  EXPECT_TRUE(world.all<SendSignal>().empty());
  world.exit_process("decode-0", "exit code 0");
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kStarting);
  EXPECT_EQ(world.process("decode-0").role, net::Role::kDecode);
  EXPECT_EQ(world.process("decode-0").place.node, "b");
  EXPECT_NE(world.process("decode-0").engine_id, before);
  EXPECT_EQ(world.process("decode-0").replacements, 1U);
  EXPECT_EQ(world.process("decode-0").last_exit, "") << "it was asked to end";
  EXPECT_EQ(world.job.trust().level("a", world.now), 1U);
}

TEST(Job, AReplacedWorkerStaysOnTheOnlyNodeWithRoom) {
  TrustWorld world(0);
  world.make_ready();
  world.tell(ReplaceAsked{"decode-0"});
  world.exit_process("decode-0", "exit code 0");
  EXPECT_EQ(world.state_of("decode-0"), ProcessState::kStarting);
  EXPECT_EQ(world.process("decode-0").place.node, "a");
  EXPECT_FALSE(world.job.has_room_elsewhere(world.process("decode-0"), world.now));
}

TEST(Job, OnlyAWorkerThatServesIsReplaced) {
  TrustWorld world(4);
  world.make_ready();
  world.tell(sizes(1, 0));
  world.tell(ReplaceAsked{"decode-0"});
  world.exit_process("decode-0", "exit code 0");
  EXPECT_EQ(world.job.find("decode-0"), nullptr);
  world.tell(ReplaceAsked{"nobody"});
  world.crash_process("prefill-0");
  world.tell(ReplaceAsked{"prefill-0"});
  EXPECT_EQ(world.state_of("prefill-0"), ProcessState::kBackoff);
}

// For any order of any events: the job never wedges or busy-waits, and stops when told.
TEST(Job, RandomEventsNeverBreakItAndItAlwaysStops) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    World world;
    world.start();
    const Names names = {"router-0", "prefill-0", "decode-0"};
    for (int i = 0; i < 200 && world.job.state() != JobState::kDone; ++i) {
      const std::string& name = names[random.below(3)];
      world.now += milliseconds(random.below(random.chance(0.1) ? 20000 : 300));
      world.routers_lie = true;
      world.router_confirms = random.chance(0.7);
      switch (random.below(13)) {
        case 11:
          world.tell(ReplaceAsked{name});
          break;
        case 12:
          world.tell(NodeBlamed{name});
          break;
        case 9:
          world.beat_standing_still(name, seconds(random.below(200)));
          break;
        case 10:
          world.crash_process(name);
          break;
        case 0:
          world.register_process(name);
          break;
        case 1:
          world.beat_all();
          break;
        case 2:
          world.exit_process(name);
          break;
        case 3:
          world.tell(ProbeSucceeded{random.below(20), random.below(2)});
          break;
        case 4:
          world.tell(ProbeFailed{random.below(20), "x"});
          break;
        case 5:
          world.tell(MessageArrived{name, net::Acknowledge{}});
          break;
        case 6:
          world.confirm(random.below(30));
          break;
        case 7:
          random.chance(0.02) ? world.tell(StopAsked{0}) : world.beat_all();
          break;
        default:
          world.tell(TimePassed{});
          break;
      }
      world.tell(TimePassed{});
      if (world.job.state() != JobState::kDone) {
        EXPECT_GT(world.job.next_wakeup(), world.now) << "seed " << seed;
      }
    }
    for (int i = 0; i < 10 && world.job.state() != JobState::kDone; ++i) {
      world.tell(StopAsked{0});
      for (const std::string& name : names) {
        world.exit_process(name);
      }
    }
    EXPECT_EQ(world.job.state(), JobState::kDone) << "seed " << seed;
    EXPECT_EQ(world.all<Finish>().size(), 1U) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pdjob::launcher
