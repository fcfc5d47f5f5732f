#include "launcher/ray/ray_session.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RaySetting setting(uint32_t guests = 1, uint64_t seed = 1) {
  RaySetting setting{
      .job = "j", .address = "10.0.0.1:6379", .clusters = {{.name = "a"}}, .seed = seed};
  for (uint32_t guest = 0; guest < guests; ++guest) {
    const std::string name(1, static_cast<char>('b' + guest));
    setting.clusters.push_back({.name = name, .dashboard = "http://" + name, .python = "python3"});
  }
  return setting;
}

// A session, and Ray as it sees it: clusters with room for one node each, a shim, agents. A test
// breaks them, and decides when they answer.
class World {
 public:
  explicit World(RaySetting setting) : clusters_(setting.clusters), session(std::move(setting)) {}

  void step(const RayEvent& event) {
    std::vector<RayEffect> effects;
    session.step(event, now, effects);
    EXPECT_GT(session.next_wakeup(), now);
    for (const RayEffect& effect : effects) {
      std::visit([this](const auto& one) { carry_out(one); }, effect);
    }
  }
  void say(ShimLine line) { step(ShimSaid{std::move(line)}); }

  // All answers that are due come, in a random order if there is a `random`. Then time passes.
  void run(Duration duration, Random* random = nullptr) {
    const Instant end = now + duration;
    while (true) {
      while (answer_one(random)) {
      }
      now = std::max(now, std::min(end, session.next_wakeup()));
      step(TimePassed{});
      if (now >= end) {
        while (answer_one(random)) {
        }
        return;
      }
    }
  }
  bool answer_one(Random* random) {
    if (inbox_.empty()) {
      return false;
    }
    const size_t at = random == nullptr ? 0 : any_of_inbox(*random);
    const RayEvent event = inbox_[at];
    inbox_.erase(inbox_.begin() + static_cast<std::ptrdiff_t>(at));
    step(event);
    return true;
  }

  // The shim's events keep their order; answers may overtake them and each other.
  size_t any_of_inbox(Random& random) const {
    const auto is_news = [](const RayEvent& event) {
      const auto* news_line = std::get_if<ShimSaid>(&event);
      return news_line != nullptr && !std::holds_alternative<ShimDone>(news_line->line) &&
             !std::holds_alternative<ShimRefused>(news_line->line);
    };
    const size_t at = random.below(inbox_.size());
    return is_news(inbox_[at])
               ? static_cast<size_t>(std::ranges::find_if(inbox_, is_news) - inbox_.begin())
               : at;
  }

  // --- faults
  void kill_shim() {
    shim_ = false;
    inbox_.clear();
    asked_.clear();
    step(ShimGone{"signal 9 (Killed)"});
  }
  void kill_node(const std::string& node) {
    const std::string slot = std::exchange(nodes_[node], "");
    nodes_.erase(node);
    jobs_.erase(slot);
    agents_.erase(slot);
    tell_node(node, slot, false);
    for (auto& [name, group] : groups_) {
      for (auto& [bundle, place] : group) {
        if (place == node) {
          place.clear();
        }
      }
    }
    heal_groups();
  }
  void kill_agent(const std::string& slot) {
    if (agents_.erase(slot) != 0) {
      inbox_.push_back(AgentLost{slot});
    }
  }
  std::string node_of(const std::string& slot) const {
    for (const auto& [node, its_slot] : nodes_) {
      if (its_slot == slot) {
        return node;
      }
    }
    return {};
  }

  bool all_up() const {
    return std::ranges::all_of(session.slots(), [&](const RaySlot& slot) {
      return slot.state == SlotState::kUp && agents_.contains(slot.name);
    });
  }
  std::string states() const {
    std::string text;
    for (const RaySlot& slot : session.slots()) {
      text += slot.name + " " + std::to_string(static_cast<int>(slot.state)) + " ";
    }
    return text;
  }
  bool nothing_held() const { return groups_.empty() && jobs_.empty() && agents_.empty(); }

  Instant now{std::chrono::hours(1)};
  bool home_has_room = true;
  bool home_answers = true;
  std::set<std::string> refusing;     // Clusters whose versions differ.
  std::set<std::string> full;         // Clusters without room.
  std::set<std::string> dead_agents;  // Slots where no agent gets up.
  std::set<std::string> slow;         // Slots to which pdjob is on its way, for ever.
  std::vector<uint64_t> bringing;     // The requests of those.
  std::vector<std::string> said;
  std::optional<bool> closed_clean;
  uint32_t shims = 0;

 private:
  using Group = std::map<std::string, std::string>;  // Slot -> node.

  void carry_out(const StartShim&) {
    EXPECT_FALSE(shim_) << "one shim at a time";
    shim_ = true;
    ++shims;
    inbox_.push_back(ShimSaid{ShimHello{.protocol = 1, .ray = "2.60.0", .python = "3.11.7"}});
  }
  void carry_out(const EndShim&) {
    shim_ = false;
    asked_.clear();
    std::erase_if(inbox_,
                  [](const RayEvent& event) { return std::holds_alternative<ShimSaid>(event); });
  }
  void carry_out(const SayOfRay& effect) { said.push_back(effect.text); }
  void carry_out(const RayClosed& effect) { closed_clean = effect.clean; }
  void carry_out(const StartSlotAgent& effect) {
    ASSERT_TRUE(order_.contains(effect.reservation)) << "an agent without a reservation";
    const auto group = groups_.find(effect.reservation);
    if (group == groups_.end() || group->second[effect.slot].empty()) {
      return refuse(effect.id, "failed", "its node has just gone");
    }
    agents_.erase(effect.slot);
    if (slow.contains(effect.slot)) {
      bringing.push_back(effect.id);
      return;
    }
    done(effect.id, "");
    if (!dead_agents.contains(effect.slot)) {
      agents_.insert(effect.slot);
      inbox_.push_back(AgentCame{effect.slot});
    }
  }
  void carry_out(const AskShim& effect) {
    EXPECT_TRUE(shim_) << "nobody hears it";
    if (home_answers || std::holds_alternative<OpenHome>(effect.request) ||
        std::holds_alternative<LeaveHome>(effect.request)) {
      std::visit([&](const auto& one) { take(effect.id, one); }, effect.request);
    }
  }

  void take(uint64_t id, const OpenHome&) {
    std::string names;
    for (const auto& [name, group] : groups_) {
      names += (names.empty() ? "" : ",") + name;
    }
    // As the shim does: what is there comes before the first word on the home.
    done(id, names);
    for (const auto& [node, slot] : nodes_) {
      tell_node(node, slot, true);
    }
    for (const auto& [name, group] : groups_) {
      tell_group(name);
    }
    inbox_.push_back(ShimSaid{HomeSeen{true}});
  }
  void take(uint64_t id, const JoinHome& request) {
    if (refusing.contains(request.cluster)) {
      return refuse(id, "version_mismatch", "cluster " + request.cluster + " runs Ray 2.9.0");
    }
    EXPECT_FALSE(submissions_.contains(request.submission)) << "an id twice";
    submissions_[request.submission] = request.slot;
    done(id, "");
    if (full.contains(request.cluster)) {
      return;
    }
    EXPECT_FALSE(jobs_.contains(request.slot)) << "two nodes for one slot";
    const std::string node = "node" + std::to_string(next_node_++);
    jobs_[request.slot] = request.submission;
    nodes_[node] = request.slot;
    tell_node(node, request.slot, true);
    heal_groups();
  }
  void take(uint64_t id, const LeaveHome& request) {
    const std::string slot = submissions_[request.submission];
    done(id, "");
    if (jobs_.contains(slot) && jobs_[slot] == request.submission) {
      kill_node(node_of(slot));
    }
  }
  void take(uint64_t id, const Reserve& request) {
    Group group;
    for (const RayBundle& bundle : request.bundles) {
      const std::string node = bundle.guest ? node_of(bundle.slot) : home_has_room ? "home" : "";
      if (node.empty()) {
        return refuse(id, "no_room", "no room");
      }
      group[bundle.slot] = node;
    }
    groups_[request.name] = group;
    order_[request.name] = request.bundles;
    done(id, places(request.name));
    tell_group(request.name);
  }
  void take(uint64_t id, const Release& request) {
    groups_.erase(request.name);
    done(id, "");
  }
  void take(uint64_t /*id*/, const StartAgent&) { FAIL() << "the shell makes these"; }
  void take(uint64_t id, const CloseHome&) {
    groups_.clear();
    agents_.clear();
    while (!jobs_.empty()) {
      kill_node(node_of(jobs_.begin()->first));
    }
    done(id, "");
  }

  std::string places(const std::string& name) {
    std::string text;
    for (const RayBundle& bundle : order_[name]) {
      text += (text.empty() ? "" : ",") + groups_[name][bundle.slot];
    }
    return text;
  }
  void heal_groups() {
    for (auto& [name, group] : groups_) {
      for (auto& [slot, node] : group) {
        if (node.empty()) {
          node = slot.starts_with("a.") ? "home" : node_of(slot);
        }
      }
      tell_group(name);
    }
  }
  void tell_group(const std::string& name) {
    inbox_.push_back(ShimSaid{ReservationSeen{.name = name, .nodes = split_names(places(name))}});
  }
  void tell_node(const std::string& node, const std::string& slot, bool alive) {
    if (shim_) {
      inbox_.push_back(ShimSaid{RayNodeSeen{.node = node,
                                            .alive = alive,
                                            .address = "10.0.0.2",
                                            .cluster = slot.substr(0, 1),
                                            .slot = slot}});
    }
  }
  void done(uint64_t id, const std::string& text) {
    inbox_.push_back(ShimSaid{ShimDone{id, text}});
  }
  void refuse(uint64_t id, const std::string& kind, const std::string& text) {
    inbox_.push_back(ShimSaid{ShimRefused{id, kind, text}});
  }

  std::vector<RayClusterSetting> clusters_;
  bool shim_ = false;
  std::vector<RayEvent> inbox_;
  std::set<uint64_t> asked_;
  std::map<std::string, std::string> submissions_;  // -> slot
  std::map<std::string, std::string> jobs_;         // Slot -> submission that runs.
  std::map<std::string, std::string> nodes_;        // -> slot
  std::map<std::string, Group> groups_;
  std::map<std::string, std::vector<RayBundle>> order_;
  std::set<std::string> agents_;
  uint32_t next_node_ = 0;

 public:
  RaySession session;
};

bool has(const std::vector<std::string>& texts, const std::string& part) {
  return std::ranges::any_of(
      texts, [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

TEST(RaySession, ReservesAllSlotsTogetherAndStartsAnAgentOnEach) {
  World world(setting(2));
  world.run(seconds(1));
  EXPECT_TRUE(world.all_up()) << world.states();
  EXPECT_TRUE(world.session.connected());
  std::set<std::string> reservations;
  for (const RaySlot& slot : world.session.slots()) {
    reservations.insert(slot.reservation);
  }
  EXPECT_EQ(reservations.size(), 1U);
}

TEST(RaySession, GivesEverythingBackWhenItCloses) {
  World world(setting(2));
  world.run(seconds(1));
  world.step(RayCloseAsked{});
  world.run(seconds(1));
  EXPECT_EQ(world.closed_clean, true);
  EXPECT_TRUE(world.nothing_held());
}

TEST(RaySession, LeavesTheRestToTheKeeperWhenRayDoesNotAnswerAtTheEnd) {
  World world(setting());
  world.run(seconds(1));
  world.home_answers = false;
  world.step(RayCloseAsked{});
  world.run(seconds(14));
  EXPECT_FALSE(world.closed_clean.has_value());
  world.run(seconds(2));
  EXPECT_EQ(world.closed_clean, false);
}

TEST(RaySession, ClosesAtOnceBeforeItReachedRay) {
  World world(setting());
  world.step(TimePassed{});
  world.step(RayCloseAsked{});
  EXPECT_EQ(world.closed_clean, true);
}

TEST(RaySession, ALostGuestNodeComesBackInItsOldBundle) {
  World world(setting());
  world.run(seconds(1));
  const std::string reservation = world.session.slots()[1].reservation;
  world.kill_node(world.node_of("b.0"));
  world.answer_one(nullptr);
  EXPECT_EQ(world.session.slots()[1].state, SlotState::kAway);
  EXPECT_EQ(world.session.slots()[0].state, SlotState::kUp);
  world.run(seconds(5));
  EXPECT_TRUE(world.all_up()) << world.states();
  EXPECT_EQ(world.session.slots()[1].reservation, reservation);
}

TEST(RaySession, ALostAgentIsStartedAgainAfterItHadTimeToReturn) {
  World world(setting());
  world.run(seconds(1));
  world.kill_agent("b.0");
  world.run(seconds(4));
  EXPECT_FALSE(world.all_up());
  world.run(seconds(2));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, AnAgentThatNeverJoinsIsTriedAgainWithPauses) {
  World world(setting());
  world.dead_agents = {"b.0"};
  world.run(seconds(65));
  EXPECT_TRUE(has(world.said, "its agent did not join"));
  world.dead_agents.clear();
  world.run(seconds(120));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, WaitsLongWhilePdjobIsBroughtAndThenAsForAnyAgent) {
  World world(setting());
  world.slow = {"b.0"};
  world.run(std::chrono::minutes(14));
  ASSERT_EQ(world.bringing.size(), 1U) << "a second start would end the first";
  world.say(ShimDone{world.bringing[0], "80 MB were sent"});
  EXPECT_TRUE(has(world.said, "slot b.0: 80 MB were sent"));
  world.slow.clear();
  world.run(seconds(70));
  EXPECT_TRUE(has(world.said, "slot b.0: its agent did not join"));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, TheEndOfAnEarlierStartDoesNotDisturbTheNextOne) {
  World world(setting());
  world.slow = {"b.0"};
  world.run(seconds(10));
  world.kill_node(world.node_of("b.0"));
  world.run(seconds(10));
  ASSERT_EQ(world.bringing.size(), 2U);
  world.say(ShimRefused{world.bringing[0], "failed", "its actor died"});
  world.run(seconds(60));
  EXPECT_EQ(world.bringing.size(), 2U);
  EXPECT_FALSE(has(world.said, "its actor died"));
}

TEST(RaySession, AGuestOfAnotherVersionIsNamedOnceAndTriedWithPauses) {
  World world(setting());
  world.refusing = {"b"};
  world.run(seconds(60));
  EXPECT_EQ(std::ranges::count_if(world.said,
                                  [](const std::string& text) {
                                    return text.find("runs Ray 2.9.0") != std::string::npos;
                                  }),
            1);
  EXPECT_EQ(world.session.slots()[0].state, SlotState::kHere)
      << "nothing is reserved for a part of the job";
  world.refusing.clear();
  world.run(seconds(60));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, GivesBackWhatCameWhenTheRestDoesNotComeInTime) {
  World world(setting(2));
  world.full = {"c"};
  world.run(seconds(60));
  EXPECT_FALSE(world.node_of("b.0").empty());
  world.run(seconds(30));
  EXPECT_TRUE(world.node_of("b.0").empty());
  EXPECT_TRUE(has(world.said, "giving back"));
  world.full.clear();
  world.run(seconds(200));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, StartsWithoutTheNodesThatMayCome) {
  RaySetting one = setting();
  one.clusters[1].nodes_min = 0;
  World world(one);
  world.full = {"b"};
  world.run(seconds(2));
  EXPECT_EQ(world.session.slots()[0].state, SlotState::kUp);
  world.full.clear();
  world.run(seconds(200));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, WaitsForRoomInTheHome) {
  World world(setting());
  world.home_has_room = false;
  world.run(seconds(30));
  EXPECT_FALSE(world.all_up());
  world.home_has_room = true;
  world.run(seconds(60));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, AgentsStayWhileTheShimIsStartedAgain) {
  World world(setting());
  world.run(seconds(1));
  world.kill_shim();
  EXPECT_TRUE(world.all_up());
  EXPECT_FALSE(world.session.connected());
  world.run(seconds(5));
  EXPECT_TRUE(world.session.connected());
  EXPECT_TRUE(world.all_up()) << world.states();
  EXPECT_EQ(world.shims, 2U);
}

TEST(RaySession, NoticesWhatHappenedWhileNoShimWasThere) {
  World world(setting());
  world.run(seconds(1));
  world.kill_shim();
  world.kill_node(world.node_of("b.0"));
  world.run(seconds(10));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, AsksNothingWhileTheHomeDoesNotAnswer) {
  World world(setting());
  world.run(seconds(1));
  world.say(HomeSeen{false});
  EXPECT_TRUE(world.all_up());
  EXPECT_FALSE(world.session.connected());
  world.kill_agent("b.0");
  world.run(seconds(60));
  EXPECT_FALSE(world.all_up());
  world.say(HomeSeen{true});
  world.run(seconds(5));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, AShimOfAnotherProtocolIsNotUsed) {
  World world(setting());
  std::vector<RayEffect> effects;
  world.session.step(TimePassed{}, world.now, effects);
  effects.clear();
  world.session.step(ShimSaid{ShimHello{.protocol = 2}}, world.now, effects);
  ASSERT_FALSE(effects.empty());
  EXPECT_TRUE(std::holds_alternative<EndShim>(effects.front()));
  EXPECT_EQ(world.session.trouble(), "it speaks protocol 2");
}

// A session whose shim answers only what a test says.
class Dialogue {
 public:
  explicit Dialogue(RaySetting setting) : session(std::move(setting)) {
    step(TimePassed{});
    say(ShimHello{.protocol = kShimProtocol, .ray = "2.60.0", .python = "3.11.7"});
    say(ShimDone{take<OpenHome>()->first, ""});
    say(HomeSeen{true});
  }
  void step(const RayEvent& event) { session.step(event, now, effects_); }
  void say(ShimLine line) { step(ShimSaid{std::move(line)}); }
  void pass(Duration duration) {
    const Instant end = now + duration;
    while (session.next_wakeup() <= end) {
      now = session.next_wakeup();
      step(TimePassed{});
    }
    now = end;
  }
  // The first request of this kind that no test has taken yet, and its id.
  template <class Request>
  std::optional<std::pair<uint64_t, Request>> take() {
    for (auto effect = effects_.begin(); effect != effects_.end(); ++effect) {
      const auto* ask = std::get_if<AskShim>(&*effect);
      if (ask != nullptr && std::holds_alternative<Request>(ask->request)) {
        std::pair taken(ask->id, std::get<Request>(ask->request));
        effects_.erase(effect);
        return taken;
      }
    }
    return std::nullopt;
  }
  // Whether it was given back, once it is.
  std::optional<bool> closed() const {
    for (const RayEffect& effect : effects_) {
      if (const auto* one = std::get_if<RayClosed>(&effect)) {
        return one->clean;
      }
    }
    return std::nullopt;
  }

  Instant now{std::chrono::hours(1)};
  RaySession session;

 private:
  std::vector<RayEffect> effects_;
};

TEST(RaySession, AJobThatEndsWhileItIsAskedToEndIsReplacedAfterTheAnswer) {
  Dialogue dialogue(setting());
  const auto first = dialogue.take<JoinHome>();
  ASSERT_TRUE(first.has_value());
  dialogue.say(ShimDone{first->first, ""});
  dialogue.say(RayNodeSeen{.node = "n1", .alive = true, .cluster = "b", .slot = "b.0"});
  dialogue.say(RayNodeSeen{.node = "n1", .alive = false, .cluster = "b", .slot = "b.0"});
  const auto leave = dialogue.take<LeaveHome>();
  ASSERT_TRUE(leave.has_value());
  EXPECT_EQ(leave->second.submission, first->second.submission);
  dialogue.say(GuestEnded{.slot = "b.0", .submission = first->second.submission});
  dialogue.pass(seconds(30));
  EXPECT_FALSE(dialogue.take<JoinHome>().has_value())
      << "the answer to the old job's end would be taken for the new one's";
  dialogue.say(ShimDone{leave->first, ""});
  dialogue.pass(seconds(30));
  const auto second = dialogue.take<JoinHome>();
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(second->second.submission, first->second.submission);
}

TEST(RaySession, AJobThatIsOnItsWayToAGuestLeavesOnceItHasArrived) {
  Dialogue dialogue(setting());
  const auto join = dialogue.take<JoinHome>();
  ASSERT_TRUE(join.has_value());
  dialogue.step(RayCloseAsked{});
  EXPECT_FALSE(dialogue.take<LeaveHome>().has_value()) << "its end would overtake its beginning";
  const auto close = dialogue.take<CloseHome>();
  ASSERT_TRUE(close.has_value());
  dialogue.say(ShimDone{close->first, ""});
  EXPECT_FALSE(dialogue.closed().has_value());
  dialogue.say(ShimDone{join->first, ""});
  const auto leave = dialogue.take<LeaveHome>();
  ASSERT_TRUE(leave.has_value());
  EXPECT_EQ(leave->second.submission, join->second.submission);
  dialogue.say(ShimDone{leave->first, ""});
  EXPECT_EQ(dialogue.closed(), true);
}

TEST(RaySession, AJobThatDidNotJoinInTimeLeavesBeforeTheNextOneIsSubmitted) {
  Dialogue dialogue(setting());
  const auto join = dialogue.take<JoinHome>();
  ASSERT_TRUE(join.has_value());
  dialogue.say(ShimDone{join->first, ""});
  dialogue.pass(seconds(95));
  const auto leave = dialogue.take<LeaveHome>();
  ASSERT_TRUE(leave.has_value());
  EXPECT_FALSE(dialogue.take<JoinHome>().has_value());
}

TEST(RaySession, AReservationThatOvertookItsReleaseIsReleased) {
  Dialogue dialogue(setting());
  const ReservationSeen late{.name = "r99", .nodes = {"home", "n1"}};
  dialogue.say(late);
  const auto release = dialogue.take<Release>();
  ASSERT_TRUE(release.has_value());
  EXPECT_EQ(release->second.name, "r99");
  dialogue.say(ShimDone{release->first, ""});
  dialogue.say(ReservationSeen{.name = "r99", .removed = true});
  EXPECT_FALSE(dialogue.take<Release>().has_value());
}

TEST(RaySession, AReservationWhoseShimDiedBeforeItWasGrantedIsTriedAnew) {
  Dialogue dialogue(setting());
  const RayNodeSeen node{.node = "n1", .alive = true, .cluster = "b", .slot = "b.0"};
  dialogue.say(ShimDone{dialogue.take<JoinHome>()->first, ""});
  dialogue.say(node);
  const auto first = dialogue.take<Reserve>();
  ASSERT_TRUE(first.has_value());
  dialogue.step(ShimGone{"signal 9 (Killed)"});
  dialogue.pass(seconds(2));
  dialogue.say(ShimHello{.protocol = kShimProtocol, .ray = "2.60.0", .python = "3.11.7"});
  dialogue.say(ShimDone{dialogue.take<OpenHome>()->first, first->second.name});
  dialogue.say(node);
  dialogue.say(ReservationSeen{.name = first->second.name, .nodes = {}});
  dialogue.say(HomeSeen{true});
  const auto release = dialogue.take<Release>();
  ASSERT_TRUE(release.has_value());
  EXPECT_EQ(release->second.name, first->second.name);
  dialogue.pass(seconds(5));
  const auto second = dialogue.take<Reserve>();
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(second->second.name, first->second.name);
}

TEST(RaySession, AnAgentWhoseShimDiedWhileItWasStartedIsStartedAgain) {
  World world(setting());
  world.slow = {"b.0"};
  world.run(seconds(1));
  ASSERT_EQ(world.bringing.size(), 1U);
  world.slow.clear();
  world.kill_shim();
  world.run(seconds(70));
  EXPECT_TRUE(world.all_up()) << world.states();
}

TEST(RaySession, GuestsGetTheirNodesBackAlsoWhenTheHomeIsLostAtTheEnd) {
  World world(setting());
  world.run(seconds(1));
  ASSERT_FALSE(world.node_of("b.0").empty());
  world.kill_shim();
  world.home_answers = false;
  world.step(RayCloseAsked{});
  EXPECT_FALSE(world.closed_clean.has_value());
  world.run(seconds(1));
  EXPECT_EQ(world.closed_clean, false) << "the keeper has the rest";
  EXPECT_TRUE(world.node_of("b.0").empty());
  EXPECT_EQ(world.shims, 2U);
}

TEST(RaySession, AShimKeepsItsLeaseWhileTheHomeIsAwayUntilRayGivesUp) {
  World world(setting());
  world.run(seconds(1));
  world.say(HomeSeen{false});
  world.run(RaySetting().reconnect - seconds(1));
  EXPECT_EQ(world.shims, 1U);
  world.run(seconds(10));
  EXPECT_EQ(world.shims, 2U);
  EXPECT_TRUE(world.all_up()) << world.states();
}

// Whatever breaks, once it stops breaking all slots get up, and the end leaves nothing behind.
TEST(RaySession, RandomStoriesEndWell) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    World world(setting(1 + static_cast<uint32_t>(random.below(3)), seed));
    for (int fault = 0; fault < 12; ++fault) {
      world.run(milliseconds(random.below(8000)), &random);
      const RaySlot& slot = world.session.slots()[random.below(world.session.slots().size())];
      switch (random.below(7)) {
        case 0:
          world.kill_shim();
          break;
        case 1:
        case 2:
          if (const std::string node = world.node_of(slot.name); !node.empty()) {
            world.kill_node(node);
          }
          break;
        case 3:
          world.kill_agent(slot.name);
          break;
        case 4:
          world.home_answers = !world.home_answers;
          world.say(HomeSeen{world.home_answers});
          break;
        case 5:
          world.full =
              random.chance(0.5) ? std::set<std::string>{slot.cluster} : std::set<std::string>{};
          break;
        default:
          world.home_has_room = random.chance(0.5);
          break;
      }
    }
    world.full.clear();
    world.home_has_room = world.home_answers = true;
    world.say(HomeSeen{true});
    world.run(std::chrono::minutes(10), &random);
    ASSERT_TRUE(world.all_up()) << "seed " << seed << ": " << world.states();
    world.step(RayCloseAsked{});
    world.run(seconds(20), &random);
    ASSERT_TRUE(world.closed_clean.has_value()) << "seed " << seed;
    ASSERT_TRUE(world.nothing_held()) << "seed " << seed;
    if (::testing::Test::HasFailure()) {
      FAIL() << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace pdjob::launcher
