// The ExternalRouter core keeps an external router running in front of the job's workers. It starts
// an instance, waits until the instance is ready and knows its workers, then lets connections go to
// it. It reports changes of the workers as the recipe says.
//
// Some routers cannot be told of a change, and some do not apply one within kTellTimeout. A new
// instance then replaces the old one, which drains.
//
//   instance:  starting --> serving --> ending --> (gone)
//                 |                       ^
//                 |-----------------------|
//
// The core knows no processes, sockets or files. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/id.h"
#include "common/time.h"
#include "net/control/message.h"
#include "router/recipes/router_recipe.h"

namespace pdjob::router {

// One start of the router's program; never reused.
using InstanceId = StrongId<struct InstanceTag, uint64_t>;

// --- events

struct MembersChanged {
  uint64_t version = 0;
  std::vector<net::WorkerEntry> workers;
};
struct InstanceExited {
  InstanceId instance;
  std::string how;
};
// Answers to CheckReady and ReadMembers. The value is false or empty if the answer was missing or
// could not be parsed.
struct ReadyChecked {
  InstanceId instance;
  bool ready = false;
};
struct MembersRead {
  InstanceId instance;
  std::optional<std::set<std::string>> names;
};
struct DrainAsked {};

using ExternalEvent =
    std::variant<MembersChanged, InstanceExited, ReadyChecked, MembersRead, DrainAsked, TimePassed>;

// --- effects, to be done in order

struct StartInstance {
  InstanceId instance;
  std::vector<net::WorkerEntry> workers;
};
struct EndInstance {
  InstanceId instance;
  bool at_once = false;  // Otherwise it may finish its connections.
};
struct CheckReady {
  InstanceId instance;
};
struct ReadMembers {
  InstanceId instance;
};
// An HTTP call. Reading the members back shows whether it worked.
struct TellOf {
  InstanceId instance;
  std::string name;  // The recipe's name for it.
  net::WorkerEntry worker;
  bool added = false;  // False: the worker has gone.
};
// Sets where new connections go; empty: they wait.
struct PassTo {
  std::optional<InstanceId> instance;
};
struct MembersApplied {
  uint64_t version = 0;
};
struct ExternalDrained {};
// The router's instances keep dying before they serve.
struct GiveUp {
  std::string reason;
};

using ExternalEffect = std::variant<StartInstance, EndInstance, CheckReady, ReadMembers, TellOf,
                                    PassTo, MembersApplied, ExternalDrained, GiveUp>;

class ExternalRouter {
 public:
  static constexpr Duration kCheckInterval = std::chrono::milliseconds(100);
  static constexpr Duration kSettle = std::chrono::milliseconds(200);  // Changes come in bursts.
  static constexpr Duration kTellTimeout = std::chrono::seconds(10);
  static constexpr Duration kTellAgain = std::chrono::seconds(2);
  static constexpr Duration kReviewInterval = std::chrono::seconds(5);  // Of its workers.
  static constexpr Duration kBackoffMin = std::chrono::milliseconds(100);
  static constexpr Duration kBackoffMax = std::chrono::seconds(5);
  static constexpr uint32_t kDeathsMax = 5;   // In a row, before any served.
  static constexpr size_t kInstancesMax = 4;  // Beyond: the oldest that drains is killed.

  // `plain`: the job is not disaggregated.
  ExternalRouter(const RouterRecipe& recipe, bool plain) : recipe_(recipe), plain_(plain) {}

  void step(const ExternalEvent& event, Instant now, std::vector<ExternalEffect>& effects);
  Instant next_wakeup() const;

  bool serving() const { return find(State::kServing) != nullptr; }

 private:
  using Turn = pdjob::Turn<ExternalEffect>;
  enum class State { kStarting, kServing, kEnding };
  using Members = std::map<std::string, net::WorkerEntry>;  // By the recipe's name for the worker.

  struct Instance {
    InstanceId id;
    State state = State::kStarting;
    Members told;        // Workers it was started with or told of.
    bool ready = false;  // It said so; its members are read back next.
    bool asked = false;  // A reply is pending.
    Instant next_check = kNever;
    Instant tell_again{};
    Instant deadline = kNever;  // For the start, a change or the drain.
  };

  void on(const MembersChanged& event, Turn& turn);
  void on(const InstanceExited& event, Turn& turn);
  void on(const ReadyChecked& event, Turn& turn);
  void on(const MembersRead& event, Turn& turn);
  void on(const DrainAsked& event, Turn& turn);
  void on(const TimePassed&, Turn&) {}

  void check_deadlines(Turn& turn);
  void missed_deadline(Instance& instance, Turn& turn);
  void reconcile(Turn& turn);
  void changed(Instance& serving, Turn& turn);
  void check(Instance& instance, Turn& turn);
  void start(Turn& turn);
  void serve(Instance& instance, Turn& turn);
  void end(Instance& instance, bool at_once, Turn& turn);
  void died(const std::string& how, Turn& turn);
  void review(Instance& serving, const std::set<std::string>& names, Turn& turn);
  void tell(Instance& serving, const std::set<std::string>& names, Turn& turn);
  void applied(Turn& turn);
  bool complete() const;
  Instant start_due() const;
  bool reads_back() const { return !recipe_.members_path.empty(); }
  bool is_current(const Instance& instance) const;
  std::vector<net::WorkerEntry> workers() const;
  const Instance* find(State state) const;
  Instance* find(State state);
  Instance* find(InstanceId id);

  const RouterRecipe& recipe_;
  const bool plain_;
  std::vector<Instance> instances_;  // Oldest first.
  uint64_t instances_made_ = 0;
  Members wanted_;
  uint64_t version_ = 0;
  uint64_t version_applied_ = 0;
  Instant changed_at_{};
  Instant not_before_{};  // For a start after a death.
  uint32_t deaths_ = 0;   // In a row.
  bool draining_ = false;
  bool given_up_ = false;
};

}  // namespace pdjob::router
