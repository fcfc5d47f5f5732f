#include "launcher/job/membership_log.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"
#include "net/control/member_list.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kRetry = milliseconds(500);

// Processes, and routers that keep what they are told.
class World {
 public:
  Process& add(const std::string& name, net::Role role) {
    Process& process = processes[name];
    process = {};
    process.name = name;
    process.role = role;
    return process;
  }
  void start(const std::string& name) {
    Process& process = processes[name];
    process.incarnation = {++incarnations};
    process.engine_id = name + "." + std::to_string(incarnations);
    process.loss = net::LossCause::kUnknown;
    process.entry = {.name = name, .engine_id = process.engine_id, .role = process.role, .port = 1};
    set(name, ProcessState::kRegistered);
    lists[name] = {};
  }
  void set(const std::string& name, ProcessState state) {
    processes[name].state = state;
    log.update(processes[name]);
  }
  // Returns how many messages were sent.
  size_t publish() {
    Turn turn{now, effects};
    log.publish(turn);
    return deliver();
  }
  void beat(const std::string& router) {
    Turn turn{now, effects};
    log.beat(processes[router], turn);
    deliver();
  }
  size_t deliver() {
    const size_t sent = effects.size();
    for (const Effect& effect : std::exchange(effects, {})) {
      const Send& send = std::get<Send>(effect);
      last = std::get<net::Membership>(send.message);
      if (!deaf && lists[send.peer].take(last) && !mute) {
        confirm(send.peer, last.version);
      }
    }
    return sent;
  }
  void confirm(const std::string& router, uint64_t version) {
    Turn turn{now, effects};
    log.applied(processes[router], {processes[router].engine_id, version}, turn);
  }
  std::map<std::string, net::Standing> standings(const std::string& router = "router-0") {
    std::map<std::string, net::Standing> found;
    for (const net::WorkerEntry& worker : lists[router].workers()) {
      found[worker.name] = worker.standing;
    }
    return found;
  }

  Instant now{seconds(1000)};
  uint64_t incarnations = 0;
  bool deaf = false;  // Routers get nothing.
  bool mute = false;  // Their confirmations are lost.
  std::map<std::string, Process> processes;
  std::map<std::string, net::MemberList> lists;
  std::vector<Effect> effects;
  net::Membership last;
  MembershipLog log{kRetry};
};

void start_one_of_each(World& world) {
  for (const auto& [name, role] :
       {std::pair("router-0", net::Role::kRouter), std::pair("prefill-0", net::Role::kPrefill),
        std::pair("decode-0", net::Role::kDecode)}) {
    world.add(name, role);
    world.start(name);
    world.publish();
  }
}

TEST(MembershipLog, AMemberIsProvingThenServingThenLeaving) {
  World world;
  start_one_of_each(world);
  EXPECT_EQ(world.standings()["decode-0"], net::Standing::kProving);
  world.set("decode-0", ProcessState::kReady);
  world.publish();
  EXPECT_EQ(world.standings()["decode-0"], net::Standing::kServing);
  world.set("decode-0", ProcessState::kDraining);
  world.publish();
  EXPECT_EQ(world.standings()["decode-0"], net::Standing::kLeaving);
  EXPECT_TRUE(world.log.all_know("decode-0"));
  world.set("decode-0", ProcessState::kExited);
  world.publish();
  EXPECT_FALSE(world.standings().contains("decode-0"));
}

TEST(MembershipLog, WhatDoesNotChangeIsNotSent) {
  World world;
  start_one_of_each(world);
  world.set("decode-0", ProcessState::kRegistered);
  EXPECT_EQ(world.publish(), 0U);
}

TEST(MembershipLog, SeveralChangesOfOneStepAreOneMessage) {
  World world;
  start_one_of_each(world);
  world.set("decode-0", ProcessState::kReady);
  world.set("prefill-0", ProcessState::kReady);
  EXPECT_EQ(world.publish(), 1U);
  EXPECT_EQ(world.last.workers.size(), 2U);
}

TEST(MembershipLog, AChangeIsSentWithoutTheOtherMembers) {
  World world;
  start_one_of_each(world);
  for (int i = 1; i < 100; ++i) {
    const std::string name = "decode-" + std::to_string(i);
    world.add(name, net::Role::kDecode);
    world.start(name);
    world.publish();
    EXPECT_EQ(world.last.workers.size(), 1U);
  }
  EXPECT_EQ(world.standings().size(), 101U);
}

// Found by simulation, seed 122.
TEST(MembershipLog, WhatChangesBeforeARouterConfirmsIsOneMessageAfterIt) {
  World world;
  start_one_of_each(world);
  world.mute = true;
  world.set("decode-0", ProcessState::kReady);
  EXPECT_EQ(world.publish(), 1U);
  const uint64_t on_its_way = world.last.version;
  for (int worker = 1; worker <= 100; ++worker) {
    const std::string name = "decode-" + std::to_string(worker);
    world.add(name, net::Role::kDecode);
    world.start(name);
    EXPECT_EQ(world.publish(), 0U);
  }
  world.mute = false;
  world.confirm("router-0", on_its_way);
  EXPECT_EQ(world.deliver(), 1U);
  EXPECT_EQ(world.last.since, on_its_way);
  EXPECT_EQ(world.last.workers.size(), 100U);
  EXPECT_TRUE(world.log.confirmed());
}

TEST(MembershipLog, AProcessThatStartsHidesNoChangeOfTheOthers) {
  World world;
  start_one_of_each(world);
  world.set("decode-0", ProcessState::kReady);
  world.add("decode-1", net::Role::kDecode);
  world.set("decode-1", ProcessState::kStarting);
  world.publish();
  EXPECT_EQ(world.standings()["decode-0"], net::Standing::kServing);
}

TEST(MembershipLog, ARouterOfALaterStartKnowsNothing) {
  World world;
  start_one_of_each(world);
  EXPECT_TRUE(world.log.knows("router-0", "decode-0"));
  world.deaf = true;
  world.start("router-0");
  world.publish();
  EXPECT_FALSE(world.log.knows("router-0", "decode-0"));
  EXPECT_FALSE(world.log.all_know("decode-0"));
}

TEST(MembershipLog, WhoConfirmsNothingGetsEverythingAgainAfterAWhile) {
  World world;
  start_one_of_each(world);
  world.mute = true;
  world.set("decode-0", ProcessState::kReady);
  world.publish();
  EXPECT_FALSE(world.log.confirmed());
  world.beat("router-0");
  EXPECT_FALSE(world.log.confirmed());
  world.mute = false;
  world.now += kRetry;
  world.beat("router-0");
  EXPECT_EQ(world.last.since, 0U);
  EXPECT_TRUE(world.log.confirmed());
}

// Decode-0 is gone for good, and the router has not heard of it.
void forget_a_worker_unheard(World& world) {
  start_one_of_each(world);
  world.deaf = true;
  world.set("decode-0", ProcessState::kExited);
  world.publish();
  world.log.forget(world.processes["decode-0"]);
}

TEST(MembershipLog, AForgottenProcessIsToldUntilAllRoutersKnow) {
  World world;
  forget_a_worker_unheard(world);
  world.deaf = false;
  world.now += kRetry;
  world.set("prefill-0", ProcessState::kReady);
  world.publish();
  EXPECT_FALSE(world.standings().contains("decode-0"));
}

TEST(MembershipLog, AForgottenProcessThatIsBackBeforeRoutersKnowStays) {
  World world;
  forget_a_worker_unheard(world);
  world.start("decode-0");
  world.publish();
  world.deaf = false;
  world.now += kRetry;
  world.beat("router-0");
  EXPECT_TRUE(world.standings().contains("decode-0"));
  EXPECT_TRUE(world.log.knows("router-0", "decode-0"));
}

TEST(MembershipLog, RoutersKnowWhetherTheJobSleeps) {
  World world;
  start_one_of_each(world);
  EXPECT_FALSE(world.last.asleep);
  for (const char* name : {"prefill-0", "decode-0"}) {
    world.set(name, ProcessState::kBackoff);
    world.publish();
  }
  EXPECT_FALSE(world.last.asleep) << "dead workers start again";
  for (const char* name : {"prefill-0", "decode-0"}) {
    world.processes[name].fate = Fate::kEnd;
    world.set(name, ProcessState::kExited);
    world.publish();
    world.log.forget(world.processes[name]);
  }
  EXPECT_TRUE(world.last.asleep);
  world.start("router-0");
  world.publish();
  EXPECT_TRUE(world.last.asleep) << "a router's next start";
  world.add("decode-0", net::Role::kDecode);
  world.set("decode-0", ProcessState::kStarting);
  EXPECT_EQ(world.publish(), 1U) << "before it is a member";
  EXPECT_FALSE(world.last.asleep);
}

// Whatever is lost: after silence, each router knows exactly the members.
TEST(MembershipLog, RandomLossesNeverLeaveARouterBehind) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    World world;
    start_one_of_each(world);
    world.add("router-1", net::Role::kRouter);
    world.start("router-1");
    std::vector<std::string> names = {"prefill-0", "decode-0", "router-0", "router-1"};
    for (int turn = 0; turn < 300; ++turn) {
      world.deaf = random.chance(0.3);
      world.mute = random.chance(0.3);
      const std::string& name = names[random.below(names.size())];
      switch (random.below(5)) {
        case 0:
          world.set(name, ProcessState::kBackoff);
          break;
        case 1:
          world.start(name);
          break;
        case 2:
          if (world.processes[name].serving()) {
            world.set(name, ProcessState::kReady);
          }
          break;
        case 3:
          if (names.size() < 12) {
            names.push_back("decode-" + std::to_string(turn + 1));
            world.add(names.back(), net::Role::kDecode);
            world.start(names.back());
          }
          break;
        default:
          if (names.size() > 4) {  // Retired.
            world.set(names.back(), ProcessState::kExited);
            world.publish();
            world.log.forget(world.processes[names.back()]);
            world.processes.erase(names.back());
            names.pop_back();
          }
      }
      world.publish();
    }
    world.deaf = world.mute = false;
    for (const char* router : {"router-0", "router-1"}) {
      world.now += kRetry;
      world.processes[router].serving() ? world.beat(router) : void(world.start(router));
      world.publish();
    }
    std::map<std::string, net::Standing> expected;
    for (const auto& [name, process] : world.processes) {
      if (!process.is_router() && process.serving()) {
        expected[name] = process.state == ProcessState::kReady ? net::Standing::kServing
                                                               : net::Standing::kProving;
      }
    }
    EXPECT_EQ(world.standings("router-0"), expected) << "seed " << seed;
    EXPECT_EQ(world.standings("router-1"), expected) << "seed " << seed;
  }
}

TEST(MembershipLog, RoutersAreToldWhichAdaptersAWorkerHas) {
  World world;
  world.add("router-0", net::Role::kRouter);
  world.add("decode-0", net::Role::kDecode);
  world.start("router-0");
  world.start("decode-0");
  world.publish();
  world.processes["decode-0"].entry.adapters = {"sql"};
  world.set("decode-0", ProcessState::kRegistered);
  EXPECT_EQ(world.publish(), 1U);
  ASSERT_EQ(world.lists["router-0"].workers().size(), 1U);
  EXPECT_EQ(world.lists["router-0"].workers()[0].adapters, std::vector<std::string>{"sql"});
  world.set("decode-0", ProcessState::kRegistered);
  EXPECT_EQ(world.publish(), 0U) << "nothing has changed";
}

}  // namespace
}  // namespace pdjob::launcher
