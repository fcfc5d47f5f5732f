// RaySession: the launcher's core for several Ray clusters that are merged into one. It decides
// when guests' nodes join the home cluster, what is reserved, where agents are started, and what
// is given back. It knows no processes of the job: the agents that it asks for join the launcher
// by themselves.
//
// A *slot* is a place for one agent: a share of a node of the home cluster, or a nested node of a
// guest. Its life:
//
//   away --join--> joining --node--> here --reserve--> reserving --node--> reserved
//     ^  (guests)                     ^                    ^                  | ^ start agent
//     |                               +-- (home) ----------+--- node lost ----+ | agent lost
//     +------ node lost (guests keep their bundle, which waits for the next node) up
//
// The required slots are reserved together or not at all. If they are not all here after
// `gather_timeout`, the session gives everything back, and tries again after a pause. The other
// slots are reserved when they come, and so are later ones. While Ray's control store is away, the
// session asks for nothing new, and what runs goes on.
//
// An agent ends by itself when its reservation or its node is gone (Starter in ray_shim.py). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/random.h"
#include "common/time.h"
#include "launcher/ray/shim_line.h"

namespace pdjob::launcher {

struct RayClusterSetting {
  std::string name;
  uint32_t nodes = 1;
  uint32_t nodes_min = 1;  // At most `nodes`: the first reservation waits for so many.
  RayShare share;
  // For guests only; see JoinHome.
  std::string dashboard;
  std::string python;
  std::string token_file;
  std::string home_token_file;
};

struct RaySetting {
  std::string job;  // Unique among all jobs of these clusters.
  std::string address;
  std::vector<RayClusterSetting> clusters;  // The first one is the home.
  Duration lease = std::chrono::seconds(15);
  // How long the home's control store may be away. Then Ray gives up, and a new shim tries.
  Duration reconnect = std::chrono::minutes(10);
  Duration gather_timeout = std::chrono::seconds(90);  // Twice that after the first failure.
  Duration reserve_timeout = std::chrono::seconds(20);
  Duration answer_timeout = std::chrono::seconds(60);  // Of the shim, for all other requests.
  Duration join_timeout = std::chrono::seconds(90);    // Until a nested node is there; likewise.
  Duration start_timeout = std::chrono::minutes(15);   // Until an agent is started: with a bundle.
  Duration agent_timeout = std::chrono::seconds(60);   // Until a started agent has joined.
  Duration close_timeout = std::chrono::seconds(15);
  Duration pause_min = std::chrono::seconds(1);  // Before what failed is tried again; doubles.
  Duration pause_max = std::chrono::seconds(30);
  uint64_t seed = 0;
};

// --- events
struct ShimSaid {
  ShimLine line;
};
struct ShimGone {
  std::string why;
};
struct AgentCame {
  std::string slot;
};
struct AgentLost {
  std::string slot;
};
struct RayCloseAsked {};
using RayEvent = std::variant<ShimSaid, ShimGone, AgentCame, AgentLost, RayCloseAsked, TimePassed>;

// --- effects
struct StartShim {};
struct EndShim {};  // ShimGone need not follow.
struct AskShim {
  uint64_t id = 0;
  ShimRequest request;
};
// The shell knows the agent's command and its secret.
struct StartSlotAgent {
  uint64_t id = 0;
  std::string slot;
  std::string cluster;
  std::string reservation;
  uint32_t bundle = 0;
};
struct SayOfRay {
  std::string text;
  bool warning = true;
};
struct RayClosed {
  bool clean = false;  // Everything was given back. Otherwise the keeper does it, after the lease.
};
using RayEffect = std::variant<StartShim, EndShim, AskShim, StartSlotAgent, SayOfRay, RayClosed>;

enum class SlotState { kAway, kJoining, kHere, kReserving, kReserved, kStarting, kUp };

struct RaySlot {
  std::string name;  // "b.0"
  std::string cluster;
  bool guest = false;
  bool required = false;  // Part of the first reservation.
  SlotState state = SlotState::kAway;
  std::string node;        // Its id in Ray; empty: none.
  bool told = false;       // The node was told since the shim opened.
  std::string submission;  // A job in the guest that may not have ended; empty: none.
  bool leaving = false;    // Its end is asked for.
  std::string reservation;
  uint32_t bundle = 0;
  std::string bundle_node;  // Where Ray has put the bundle; it may say so before it tells the node.
  Instant due = Instant::min();  // Deadline of a state that waits, or time of the next try.
  uint32_t failures = 0;         // In a row.
  std::string trouble;           // The last one.
};

class RaySession {
 public:
  // Requires: at least one cluster.
  explicit RaySession(RaySetting setting);

  void step(const RayEvent& event, Instant now, std::vector<RayEffect>& effects);
  Instant next_wakeup() const { return wakeup_; }

  const std::vector<RaySlot>& slots() const { return slots_; }
  // The home cluster answers. Not at once after a start.
  bool connected() const { return link_ == Link::kOpen && reachable_; }
  // Why it is not connected. Empty while nothing is wrong.
  const std::string& trouble() const { return trouble_; }

 private:
  // States of the shim: not there, started, connecting to the home, at work, giving back, done for
  // good.
  enum class Link { kNone, kStarting, kOpening, kOpen, kClosing, kClosed };
  enum class Purpose { kOpen, kJoin, kLeave, kReserve, kRelease, kAgent, kClose };
  struct Asked {
    Purpose purpose{};
    std::string name;  // Of the slot or the reservation.
    Instant deadline{};
  };
  struct Turn : pdjob::Turn<RayEffect> {
    void say(std::string text, bool warning = true) {
      effects.push_back(SayOfRay{std::move(text), warning});
    }
  };

  void on(const ShimSaid& event, Turn& turn);
  void on(const ShimGone& event, Turn& turn);
  void on(const AgentCame& event, Turn& turn);
  void on(const AgentLost& event, Turn& turn);
  void on(const RayCloseAsked& event, Turn& turn);
  void on(const TimePassed& /*event*/, Turn& /*turn*/) {}

  void heard(const ShimHello& line, Turn& turn);
  void heard(const ShimHasNoRay& line, Turn& turn);
  void heard(const ShimDone& line, Turn& turn);
  void heard(const ShimRefused& line, Turn& turn);
  void heard(const RayNodeSeen& line, Turn& turn);
  void heard(const GuestEnded& line, Turn& turn);
  void heard(const ReservationSeen& line, Turn& turn);
  void heard(const HomeSeen& line, Turn& turn);

  // Does all that is due now (ray_session_due.cc).
  void advance(Turn& turn);
  void advance_link(Turn& turn);
  void expire(Turn& turn);
  void advance_guests(Turn& turn);
  void gather(Turn& turn);
  void give_back(Turn& turn);
  void reserve(const std::vector<RaySlot*>& slots, Turn& turn);
  void advance_agents(Turn& turn);
  void plan_wakeup(Instant now);

  uint64_t ask(Purpose purpose, const std::string& name, Duration timeout, Turn& turn);
  void ask(Purpose purpose, const std::string& name, ShimRequest request, Duration timeout,
           Turn& turn);
  void opened(const std::string& reservations, Turn& turn);
  void failed(const Asked& asked, const std::string& kind, const std::string& why, Turn& turn);
  void give_back_all(bool home, Turn& turn);
  void end_link(const std::string& why, Turn& turn);
  void synced(Turn& turn);
  void closed(bool clean, Turn& turn);

  void join(RaySlot& slot, Turn& turn);
  void leave(RaySlot& slot, Turn& turn);
  void left(const std::string& slot);
  // The slot's node is gone, or its reservation is.
  void lose_node(RaySlot& slot, const std::string& why, Turn& turn);
  void lose_reservation(RaySlot& slot, const std::string& why, Turn& turn);
  void placed(RaySlot& slot, const std::string& node, Turn& turn);
  void back_off(RaySlot& slot, const std::string& why, Turn& turn);
  Duration pause(uint32_t failures);
  // A cluster that was too slow once gets twice the time.
  static Duration patience(Duration timeout, uint32_t failures) {
    return failures == 0 ? timeout : 2 * timeout;
  }
  RaySlot* find(std::string_view slot);
  const RayClusterSetting& cluster_of(const RaySlot& slot) const;
  bool has_reservation(std::string_view name) const;
  bool waits_for(Purpose purpose) const;
  bool waits_for(Purpose purpose, std::string_view name) const;
  void agent_started(RaySlot* slot, const std::string& sent, Turn& turn);

  const RaySetting setting_;
  Random random_;
  std::vector<RaySlot> slots_;
  Link link_ = Link::kNone;
  Instant link_due_ = Instant::min();
  uint32_t link_failures_ = 0;
  std::string trouble_;
  bool reachable_ = false;
  bool synced_ = false;    // All nodes and reservations were told since the shim opened.
  bool gathered_ = false;  // All required slots have had their reservation.
  Instant gather_due_ = kNever;
  uint32_t gather_failures_ = 0;
  uint64_t next_id_ = 1;
  uint64_t next_name_ = 0;  // Of submissions and reservations.
  std::map<uint64_t, Asked> asked_;
  bool close_asked_ = false;
  bool touched_ = false;  // The home cluster may hold something of ours.
  bool all_given_back_ = true;
  Instant wakeup_ = Instant::min();
};

}  // namespace pdjob::launcher
