#include "launcher/agents/agent_roster.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/config/number_list.h"
#include "common/random.h"
#include "launcher/agents/agent_session.h"
#include "tests/support/gpu_box.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AgentRosterTest : public testing::Test {
 protected:
  std::vector<RosterEffect> step(const RosterEvent& event) {
    std::vector<RosterEffect> effects;
    roster_.step(event, now_, effects);
    return effects;
  }
  std::vector<RosterEffect> hello(const std::string& name, uint64_t instance,
                                  uint64_t session = 0) {
    return step(AgentSpoke{"route of " + name,
                           {.message = AgentHello{.name = name,
                                                  .instance = instance,
                                                  .session = session,
                                                  .build = "1",
                                                  .cores = 4,
                                                  .cores_bound = "affinity",
                                                  .memory_bound = "--memory"}}});
  }
  std::vector<RosterEffect> say(uint64_t session, uint64_t number, AgentMessage message) {
    return step(AgentSpoke{"route of a", {session, number, std::move(message)}});
  }
  std::vector<RosterEffect> pass(Duration duration) {
    now_ += duration;
    return step(TimePassed{});
  }
  template <class Effect>
  static int count(const std::vector<RosterEffect>& effects) {
    int found = 0;
    for (const RosterEffect& effect : effects) {
      found += std::holds_alternative<Effect>(effect) ? 1 : 0;
    }
    return found;
  }
  template <class Message>
  static int sent(const std::vector<RosterEffect>& effects) {
    int found = 0;
    for (const RosterEffect& effect : effects) {
      const auto* to = std::get_if<SendToAgent>(&effect);
      found += to != nullptr && std::holds_alternative<Message>(to->frame.message) ? 1 : 0;
    }
    return found;
  }

  Instant now_{seconds(1000)};
  AgentRoster roster_{
      {.cluster = "lab", .job = "j", .build = "1", .first_session = 50, .nodes_max = 2}};
};

TEST_F(AgentRosterTest, ANodeIsThereOnceItsAgentIsReady) {
  EXPECT_EQ(sent<Welcome>(hello("a", 1)), 1);
  EXPECT_TRUE(roster_.nodes().empty());
  EXPECT_EQ(count<NodeCame>(say(50, 1, NodeReady{"10.0.0.1"})), 1);
  ASSERT_EQ(roster_.nodes().size(), 1U);
  EXPECT_EQ(roster_.nodes()[0].name, "lab/a");
  EXPECT_EQ(roster_.nodes()[0].host, "10.0.0.1");
  EXPECT_EQ(roster_.nodes()[0].cores, 4U);
  EXPECT_EQ(roster_.nodes()[0].cores_bound, "affinity");
  EXPECT_EQ(roster_.nodes()[0].memory_bound, "--memory");
}

TEST_F(AgentRosterTest, AReplayedHelloOfAnotherInstanceIsRefusedWhileTheAgentLives) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  const auto effects = hello("a", 2);
  EXPECT_EQ(sent<Refused>(effects), 1);
  EXPECT_EQ(count<NodeGone>(effects), 0);
}

TEST_F(AgentRosterTest, ASilentNodeIsLost) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  int lost = 0;
  for (int i = 0; i < 11; ++i) {
    lost += count<NodeGone>(pass(milliseconds(500)));
  }
  EXPECT_EQ(lost, 1);
  EXPECT_TRUE(roster_.nodes().empty());
  EXPECT_EQ(sent<Welcome>(hello("a", 2)), 1) << "the name is free";
}

TEST_F(AgentRosterTest, ANodeIsLostWhenItsMessagesWere) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  const auto effects = say(50, 3, Spawned{{1}, 5});
  EXPECT_EQ(count<NodeGone>(effects), 1);
  EXPECT_EQ(count<NodeSaid>(effects), 0);
  EXPECT_EQ(sent<Goodbye>(effects), 1);
}

TEST_F(AgentRosterTest, OneAgentCannotSpeakInTheSessionOfAnother) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  EXPECT_TRUE(
      step(AgentSpoke{"route of b", {50, 2, ProcessExited{{1}, "signal 11", true}}}).empty());
  EXPECT_TRUE(step(AgentSpoke{"route of b", {50, 2, NodeLeaving{"gone"}}}).empty());
  EXPECT_EQ(count<NodeSaid>(say(50, 2, Spawned{{1}, 5})), 1) << "no number was used up";
}

TEST_F(AgentRosterTest, WhatAnAgentSentBeforeItsConnectionEndedIsReadAfterItsHelloOnANewOne) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  step(
      AgentSpoke{"new route",
                 {.message = AgentHello{.name = "a", .instance = 1, .session = 50, .build = "1"}}});
  EXPECT_EQ(count<NodeSaid>(say(50, 2, Spawned{{1}, 5})), 1);
  EXPECT_EQ(count<NodeSaid>(step(AgentSpoke{"new route", {50, 3, Spawned{{2}, 6}}})), 1);
}

TEST_F(AgentRosterTest, AnUnknownSessionIsToldGoodbye) {
  EXPECT_EQ(sent<Goodbye>(say(49, 1, Beat{})), 1);
}

TEST_F(AgentRosterTest, AnAgentThatHoldsItsSessionGoesOn) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  const auto effects = hello("a", 1, 50);
  EXPECT_EQ(count<NodeGone>(effects), 0);
  EXPECT_EQ(sent<Beat>(effects), 1);
}

TEST_F(AgentRosterTest, AnAgentThatLostItsSessionStartsAnew) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  const auto effects = hello("a", 1);
  EXPECT_EQ(count<NodeGone>(effects), 1);
  EXPECT_EQ(sent<Welcome>(effects), 1);
}

TEST_F(AgentRosterTest, ANodeWhoseConnectionEndedIsLostAtOnce) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  const auto asked = step(SomeoneLeft{});
  ASSERT_EQ(sent<Beat>(asked), 1);
  EXPECT_EQ(count<NodeGone>(step(AgentUnreachable{std::get<SendToAgent>(asked.front()).frame})), 1);
}

TEST_F(AgentRosterTest, RefusesOtherBuildsBadNamesAndTooManyNodes) {
  EXPECT_EQ(sent<Refused>(hello("../a", 1)), 1);
  const auto other = step(AgentSpoke{"r", {.message = AgentHello{.name = "a", .build = "2"}}});
  EXPECT_EQ(sent<Refused>(other), 1);
  EXPECT_EQ(sent<Welcome>(hello("a", 1)), 1);
  EXPECT_EQ(sent<Welcome>(hello("b", 2)), 1);
  EXPECT_EQ(sent<Refused>(hello("c", 3)), 1);
}

TEST_F(AgentRosterTest, RefusesBoundsThatCannotBePrinted) {
  for (const auto& [cores_bound, memory_bound] :
       {std::pair{"quota\x1b[2J", ""}, std::pair{"", "limit\n"}}) {
    EXPECT_EQ(
        sent<Refused>(step(AgentSpoke{"r",
                                      {.message = AgentHello{.name = "c",
                                                             .build = "1",
                                                             .cores_bound = cores_bound,
                                                             .memory_bound = memory_bound}}})),
        1);
  }
}

TEST_F(AgentRosterTest, ANodeHasWhatItsAgentTellsOfItsDevices) {
  const Node box = gpu_box("a");
  step(AgentSpoke{"route of a",
                  {.message = AgentHello{
                       .name = "a", .build = "1", .gpus = box.gpus, .topology = box.topology}}});
  say(50, 1, NodeReady{"10.0.0.1"});
  ASSERT_EQ(roster_.nodes().size(), 1U);
  EXPECT_EQ(roster_.nodes().front().topology, box.topology);
}

TEST_F(AgentRosterTest, RefusesNamesOfDevicesThatAreNone) {
  for (const NodeTopology& topology :
       {NodeTopology{.gpus = {{.nics = {"mlx5_0 --x"}}}}, NodeTopology{.gpus = {{.nics = {""}}}},
        NodeTopology{.numa = {{.number = 0, .cpus = "0-x"}}},
        NodeTopology{.numa = {{.number = kListedNumbersMax, .cpus = "0"}}}}) {
    EXPECT_EQ(sent<Refused>(step(AgentSpoke{
                  "r", {.message = AgentHello{.name = "c", .build = "1", .topology = topology}}})),
              1);
  }
}

TEST_F(AgentRosterTest, ASessionOfAnEarlierLauncherOfTheRunIsNotEnded) {
  AgentRoster roster({.cluster = "lab",
                      .job = "j",
                      .build = "1",
                      .owner = "run",
                      .launcher = 2,
                      .first_session = 50});
  std::vector<RosterEffect> effects;
  roster.step(AgentSpoke{"r", {.session = 49, .number = 8, .message = Beat{}}}, now_, effects);
  EXPECT_TRUE(effects.empty());
  roster.step(AgentSpoke{"r", {.message = AgentHello{.name = "a", .session = 49, .build = "1"}}},
              now_, effects);
  ASSERT_EQ(sent<Welcome>(effects), 1);
  const auto& welcome = std::get<Welcome>(std::get<SendToAgent>(effects[0]).frame.message);
  EXPECT_EQ(welcome.owner, "run");
  EXPECT_EQ(welcome.launcher, 2U);
  effects.clear();
  roster.step(AgentSpoke{"r", {50, 1, NodeReady{"10.0.0.1", {{{4}, 44}}, {{"router-0", 80}}}}},
              now_, effects);
  ASSERT_EQ(count<NodeCame>(effects), 1);
  EXPECT_EQ(std::get<NodeCame>(effects[0]).facts.running.size(), 1U);
}

TEST_F(AgentRosterTest, AClusterOfOneKnownNodeHasItAsItIs) {
  AgentRoster roster({.cluster = "local",
                      .build = "1",
                      .only = Node{.name = "local", .cores = 9, .routers_only = true},
                      .first_session = 50});
  std::vector<RosterEffect> effects;
  roster.step(AgentSpoke{"r", {.message = AgentHello{.name = "x", .build = "1", .cores = 1}}}, now_,
              effects);
  roster.step(AgentSpoke{"r", {50, 1, NodeReady{"127.0.0.1"}}}, now_, effects);
  ASSERT_EQ(roster.nodes().size(), 1U);
  EXPECT_EQ(roster.nodes()[0].name, "local");
  EXPECT_EQ(roster.nodes()[0].cores, 9U);
  EXPECT_TRUE(roster.nodes()[0].routers_only);
}

TEST_F(AgentRosterTest, TheNextAgentOfTheOnlyNodeTakesTheDeadOnesPlaceAtOnce) {
  AgentRoster roster(
      {.cluster = "local", .build = "1", .only = Node{.name = "local"}, .first_session = 50});
  const auto greet = [&](uint64_t instance) {
    std::vector<RosterEffect> effects;
    const AgentHello hello{.name = "x", .instance = instance, .build = "1", .cores = 1};
    roster.step(AgentSpoke{"r", {.message = hello}}, now_, effects);
    return effects;
  };
  greet(1);
  std::vector<RosterEffect> effects;
  roster.step(AgentSpoke{"r", {50, 1, NodeReady{"127.0.0.1"}}}, now_, effects);
  const auto next = greet(2);
  EXPECT_EQ(count<NodeGone>(next), 1);
  EXPECT_EQ(sent<Welcome>(next), 1);
  EXPECT_EQ(sent<Refused>(next), 0);
  const auto late = greet(1);
  EXPECT_EQ(sent<Refused>(late), 1) << "what the dead one said arrives late";
  EXPECT_EQ(sent<Welcome>(late), 0);
}

TEST_F(AgentRosterTest, OwnSleepCostsNoNode) {
  hello("a", 1);
  say(50, 1, NodeReady{"10.0.0.1"});
  EXPECT_EQ(count<NodeGone>(pass(seconds(60))), 0);
}

TEST_F(AgentRosterTest, ANodeCannotClaimProcessesWhereNoLauncherLeftAny) {
  hello("a", 1);
  const auto claimed = say(50, 1, NodeReady{"10.0.0.1", {{{4}, 44}}, {}});
  EXPECT_EQ(count<NodeCame>(claimed), 0);
  EXPECT_EQ(sent<Goodbye>(claimed), 1);
  hello("a", 2);
  EXPECT_EQ(count<NodeCame>(say(51, 1, NodeReady{"10.0.0.1", {}, {{"router-0", 80}}})), 0);
}

// A roster whose agents outlive it, with one that is ready: its session is 50.
class LastingRosterTest : public testing::Test {
 protected:
  LastingRosterTest() {
    hello(0, 0);
    step(AgentSpoke{"r", {50, 1, NodeReady{"10.0.0.1"}}});
  }
  std::vector<AgentFrame> step(const RosterEvent& event) {
    std::vector<RosterEffect> effects;
    roster_.step(event, now_, effects);
    std::vector<AgentFrame> frames;
    for (const RosterEffect& effect : effects) {
      lost_ = lost_ || std::holds_alternative<NodeGone>(effect);
      if (const auto* to = std::get_if<SendToAgent>(&effect)) {
        frames.push_back(to->frame);
      }
    }
    return frames;
  }
  std::vector<AgentFrame> hello(uint64_t session, uint64_t sign) {
    return step(AgentSpoke{
        "r",
        {.message = AgentHello{
             .name = "a", .instance = 1, .session = session, .sign = sign, .build = "1"}}});
  }
  std::vector<AgentFrame> order(uint64_t incarnation) {
    return step(AgentOrder{"lab/a", StartProcess{.incarnation = incarnation}});
  }
  static std::vector<uint64_t> started(const std::vector<AgentFrame>& frames) {
    std::vector<uint64_t> incarnations;
    for (const AgentFrame& frame : frames) {
      if (const auto* start = std::get_if<StartProcess>(&frame.message)) {
        incarnations.push_back(start->incarnation);
      }
    }
    return incarnations;
  }

  Instant now_{seconds(1000)};
  bool lost_ = false;
  AgentRoster roster_{{.cluster = "lab",
                       .job = "j",
                       .build = "1",
                       .lease = seconds(60),
                       .orphan_timeout = seconds(60),
                       .owner = "run",
                       .launcher = 1,
                       .first_session = 50}};
};

TEST_F(LastingRosterTest, OrdersWaitAfterOwnSleepUntilTheAgentAnswersNow) {
  now_ += seconds(14);
  EXPECT_TRUE(order(7).empty()) << "its connection may have ended";
  const auto asked = step(TimePassed{});
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].number, 0U) << "it may be lost";
  const uint64_t sign = std::get<SignAsked>(asked[0].message).sign;
  EXPECT_TRUE(started(step(AgentSpoke{"r", {50, 1, Beat{}}})).empty()) << "of before the sleep";
  const auto old = hello(50, 0);
  ASSERT_EQ(old.size(), 1U) << "it may have waited, too";
  EXPECT_TRUE(std::holds_alternative<SignAsked>(old[0].message));
  EXPECT_TRUE(order(8).empty());
  const auto told = hello(50, sign);
  EXPECT_EQ(started(told), (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(told.front().number, 2U) << "no number was used up";
  EXPECT_EQ(started(order(9)), std::vector<uint64_t>{9});
  EXPECT_FALSE(lost_);
}

TEST_F(LastingRosterTest, WhatAnAgentSendsAgainIsHeardOnceAndALostBeatIsNoGap) {
  step(AgentSpoke{"r", {50, 2, Spawned{{1}, 5}}});
  hello(50, 0);
  step(AgentSpoke{"r", {50, 2, Spawned{{1}, 5}}});
  step(AgentSpoke{"r", {50, 2, Beat{}}});
  step(AgentSpoke{"r", {50, 3, Spawned{{2}, 6}}});
  EXPECT_FALSE(lost_);
  step(AgentSpoke{"r", {50, 4, Beat{}}});
  EXPECT_TRUE(lost_) << "message 4 was no beat";
}

TEST_F(LastingRosterTest, OrdersThatCouldNotLeaveAreSentAgainWithoutAGap) {
  const auto first = order(7);
  const auto second = order(8);
  step(AgentUnreachable{first.at(0)});
  step(AgentUnreachable{second.at(0)});
  EXPECT_TRUE(order(9).empty());
  const auto told = hello(50, 0);
  EXPECT_EQ(started(told), (std::vector<uint64_t>{7, 8, 9}));
  uint64_t number = 1;
  for (const AgentFrame& frame : told) {
    EXPECT_EQ(frame.number, ++number);
  }
}

TEST_F(LastingRosterTest, AnAgentForWhichTooManyOrdersWaitIsLost) {
  now_ += seconds(14);
  for (uint64_t i = 0; i <= kAgentHeldMax; ++i) {
    order(i);
  }
  EXPECT_TRUE(lost_);
}

TEST_F(AgentRosterTest, TheEndSaysGoodbyeToAll) {
  hello("a", 1);
  hello("b", 2);
  EXPECT_EQ(sent<Goodbye>(step(RosterClosed{})), 2);
}

TEST_F(AgentRosterTest, TheEndSaysOnceHowLongAllStaysWarm) {
  hello("a", 1);
  const auto effects = step(RosterClosed{seconds(90)});
  ASSERT_EQ(sent<Goodbye>(effects), 1);
  EXPECT_EQ(std::get<Goodbye>(std::get<SendToAgent>(effects[0]).frame.message).keep_ms, 90000U);
  const uint64_t session = std::get<SendToAgent>(effects[0]).frame.session;
  EXPECT_FALSE(roster_.closed());
  EXPECT_TRUE(pass(seconds(1)).empty()) << "no beat: the agent would think that it goes on";
  EXPECT_EQ(sent<Welcome>(hello("b", 1)), 0);
  EXPECT_FALSE(roster_.closed());
  EXPECT_EQ(sent<Welcome>(hello("a", 1, session)), 0) << "it looks for the next launcher";
  EXPECT_TRUE(roster_.closed());
  EXPECT_EQ(sent<Goodbye>(step(RosterClosed{})), 0);
}

// --- stories: the cores of both ends on a network that fails, from a seed

// One agent as its shell would be: it runs what it is told to.
struct StoryAgent {
  std::string name;
  std::unique_ptr<AgentSession> core;
  std::set<uint64_t> running;
  bool in_session = false;
  bool alive = false;
  bool linked = false;          // It has a connection.
  std::deque<AgentFrame> down;  // On the way to it.
  std::deque<AgentFrame> up;    // On the way from it.
  std::vector<AgentEvent> due;  // What its shell has to say.
};

class Story {
 public:
  Story(uint64_t seed, Duration orphan_timeout)
      : random_(seed), orphan_timeout_(orphan_timeout), agents_(3) {
    for (size_t i = 0; i < agents_.size(); ++i) {
      agents_[i].name = std::string(1, static_cast<char>('a' + i));
    }
    start_launcher();
  }

  void run() {
    for (int turn = 0; turn < 400; ++turn) {
      fault();
      tick();
    }
    for (StoryAgent& agent : agents_) {  // All heals.
      if (!agent.alive) {
        start(agent);
      }
    }
    if (launcher_ == nullptr) {
      start_launcher();
    }
    for (int turn = 0; turn < 200; ++turn) {
      for (StoryAgent& agent : agents_) {
        connect(agent);
      }
      tick();
    }
    EXPECT_EQ(launcher_->nodes().size(), agents_.size());
    for (const StoryAgent& agent : agents_) {
      EXPECT_EQ(agent.running, ordered_["lab/" + agent.name]) << agent.name;
      EXPECT_EQ(told_["lab/" + agent.name], agent.running) << "of each start the launcher knows";
    }
    launcher_.reset();
    for (StoryAgent& agent : agents_) {
      disconnect(agent);
    }
    now_ += orphan_timeout_ + seconds(6);
    for (int turn = 0; turn < 3; ++turn) {
      tick();
    }
    for (const StoryAgent& agent : agents_) {
      EXPECT_TRUE(agent.running.empty()) << agent.name << " has orphans";
    }
  }

 private:
  void fault() {
    StoryAgent& agent = agents_[random_.below(agents_.size())];
    switch (random_.below(12)) {
      case 0:
        agent.alive ? kill(agent) : start(agent);
        break;
      case 1:
        disconnect(agent);
        break;
      case 2:
        if (launcher_ == nullptr) {
          start_launcher();
        } else if (random_.below(4) == 0) {
          launcher_.reset();
          for (StoryAgent& each : agents_) {
            disconnect(each);
          }
        }
        break;
      case 3:
        if (!agent.up.empty()) {
          agent.up.pop_back();
        }
        break;
      case 4:
        if (!agent.down.empty()) {
          agent.down.pop_back();
        }
        break;
      case 5:
        now_ += milliseconds(random_.below(8000));  // Everybody slept.
        break;
      default:
        connect(agent);
        order(agent);
    }
  }

  void order(const StoryAgent& agent) {
    const std::string node = "lab/" + agent.name;
    if (launcher_ != nullptr && launcher_->has(node)) {
      ordered_[node].insert(++incarnations_);
      roster(AgentOrder{node, StartProcess{.incarnation = incarnations_}});
    }
  }

  void start_launcher() {
    sessions_ += 1000;
    ordered_.clear();
    launcher_ = std::make_unique<AgentRoster>(RosterSetting{.cluster = "lab",
                                                            .job = "j",
                                                            .build = "1",
                                                            .orphan_timeout = orphan_timeout_,
                                                            .first_session = sessions_});
  }
  void start(StoryAgent& agent) {
    agent.alive = true;
    agent.core = std::make_unique<AgentSession>(
        AgentHello{.name = agent.name, .instance = ++instances_, .build = "1"});
  }
  void kill(StoryAgent& agent) {
    disconnect(agent);
    agent.alive = agent.in_session = false;
    agent.running.clear();  // They die with it.
    agent.core.reset();
    agent.due.clear();
  }
  void connect(StoryAgent& agent) {
    if (agent.alive && !agent.linked && launcher_ != nullptr) {
      agent.linked = true;
      tell(agent, LauncherConnected{});
    }
  }
  void disconnect(StoryAgent& agent) {
    agent.up.clear();
    agent.down.clear();
    if (std::exchange(agent.linked, false) && agent.alive) {
      tell(agent, LauncherDisconnected{});
    }
  }

  void tick() {
    now_ += milliseconds(100);
    for (StoryAgent& agent : agents_) {
      for (size_t n = random_.below(4); n > 0 && !agent.down.empty(); --n) {
        const AgentFrame frame = agent.down.front();
        agent.down.pop_front();
        tell(agent, FrameArrived{frame});
      }
      if (agent.alive && now_ >= agent.core->next_wakeup()) {
        tell(agent, TimePassed{});
      }
      for (size_t n = random_.below(4); n > 0 && !agent.up.empty() && launcher_ != nullptr; --n) {
        const AgentFrame frame = agent.up.front();
        agent.up.pop_front();
        roster(AgentSpoke{agent.name, frame});
      }
    }
    if (launcher_ != nullptr && now_ >= launcher_->next_wakeup()) {
      roster(TimePassed{});
    }
  }

  void tell(StoryAgent& agent, const AgentEvent& event) {
    std::vector<AgentEffect> effects;
    agent.core->step(event, now_, effects);
    for (const AgentEffect& effect : effects) {
      carry_out(agent, effect);
    }
    for (const AgentEvent& next : std::exchange(agent.due, {})) {
      tell(agent, next);
    }
  }

  void carry_out(StoryAgent& agent, const AgentEffect& effect) {
    if (const auto* send = std::get_if<SendFrame>(&effect)) {
      if (agent.linked) {
        agent.up.push_back(send->frame);
      }
    } else if (std::holds_alternative<BeginSession>(effect)) {
      EXPECT_TRUE(agent.running.empty()) << "a launcher finds another one's processes";
      EXPECT_FALSE(std::exchange(agent.in_session, true));
      agent.due.emplace_back(SessionBegan{{.host = "10.0.0.1"}});
    } else if (std::holds_alternative<EndSession>(effect)) {
      agent.running.clear();
      agent.in_session = false;
    } else if (const auto* order = std::get_if<CarryOut>(&effect)) {
      const auto& started = std::get<StartProcess>(order->order);
      EXPECT_TRUE(agent.in_session);
      agent.running.insert(started.incarnation);
      agent.due.emplace_back(OutcomeKnown{Spawned{{started.incarnation}, 1}});
    }
  }

  void roster(const RosterEvent& event) {
    std::vector<RosterEffect> effects;
    launcher_->step(event, now_, effects);
    for (const RosterEffect& effect : effects) {
      if (const auto* send = std::get_if<SendToAgent>(&effect)) {
        for (StoryAgent& agent : agents_) {
          if (agent.name == send->route && agent.linked) {
            agent.down.push_back(send->frame);
          } else if (agent.name == send->route && random_.below(2) == 0) {
            unreachable_.push_back(send->frame);  // Sometimes the socket knows.
          }
        }
      } else if (const auto* came = std::get_if<NodeCame>(&effect)) {
        EXPECT_FALSE(ordered_.contains(came->node.name)) << "it came twice";
        ordered_[came->node.name];
        told_[came->node.name].clear();
      } else if (const auto* gone = std::get_if<NodeGone>(&effect)) {
        EXPECT_EQ(ordered_.erase(gone->node), 1U);
      } else if (const auto* said = std::get_if<NodeSaid>(&effect)) {
        const uint64_t incarnation = std::get<Spawned>(said->message).incarnation.value;
        EXPECT_TRUE(ordered_[said->node].contains(incarnation)) << "of an earlier life";
        std::set<uint64_t>& told = told_[said->node];
        EXPECT_TRUE(told.empty() || *told.rbegin() < incarnation) << "out of order";
        told.insert(incarnation);
      }
    }
    for (const AgentFrame& frame : std::exchange(unreachable_, {})) {
      roster(AgentUnreachable{frame});
    }
  }

  Random random_;
  const Duration orphan_timeout_;
  Instant now_{seconds(1000)};
  std::vector<StoryAgent> agents_;
  std::unique_ptr<AgentRoster> launcher_;
  std::map<std::string, std::set<uint64_t>> ordered_;  // In this life of each node that is there.
  std::map<std::string, std::set<uint64_t>> told_;     // Starts that the launcher knows of.
  std::vector<AgentFrame> unreachable_;
  uint64_t incarnations_ = 0;
  uint64_t instances_ = 0;
  uint64_t sessions_ = 0;
};

TEST(AgentStories, LauncherAndAgentsAgreeAndLeaveNothingBehind) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    for (const Duration orphan_timeout : {Duration{}, Duration{seconds(10)}}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Story(seed, orphan_timeout).run();
      if (testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace pdjob::launcher
