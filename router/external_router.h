// The ExternalRouter core: keeps a router of another make running before the workers that are
// there. It starts an instance, waits until that is ready and knows its workers, lets connections
// go to it, and tells it of changes in the way of its recipe. What cannot be told is met by a new
// instance that takes the place of the old one, which drains; so is what the instance does not take
// in within kTellTimeout.
//
//   instance:  starting --> serving --> ending --> (gone)
//                 |                       ^
//                 |-----------------------|
//
// It knows no processes, sockets or files. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/id.h"
#include "common/time.h"
#include "net/message.h"
#include "router/router_recipe.h"

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
// Answers to CheckReady and ReadMembers. What an instance did not answer, or not in a way that is
// understood, is nothing.
struct ReadyChecked {
  InstanceId instance;
  bool ready = false;
};
struct MembersRead {
  InstanceId instance;
  std::optional<std::set<std::string>> names;
};
struct DrainAsked {};
struct TimeWent {};

using ExternalEvent =
    std::variant<MembersChanged, InstanceExited, ReadyChecked, MembersRead, DrainAsked, TimeWent>;

// --- effects, to be done in order

struct StartInstance {
  InstanceId instance;
  std::vector<net::WorkerEntry> workers;
};
struct EndInstance {
  InstanceId instance;
  bool at_once = false;  // Else it may finish what it does.
};
struct CheckReady {
  InstanceId instance;
};
struct ReadMembers {
  InstanceId instance;
};
// By HTTP. Whether it was understood is seen when members are read back.
struct TellOf {
  InstanceId instance;
  std::string name;  // As the recipe names it.
  net::WorkerEntry worker;
  bool added = false;  // Else it has gone.
};
struct WriteMembersFile {
  InstanceId instance;
  std::vector<net::WorkerEntry> workers;
};
struct SendPings {
  InstanceId instance;
  std::vector<net::WorkerEntry> workers;
};
// Where new connections go; nothing: they wait.
struct PassTo {
  std::optional<InstanceId> instance;
};
struct MembersApplied {
  uint64_t version = 0;
};
struct ExternalDrained {};
// It does not stay alive.
struct GiveUp {
  std::string reason;
};

using ExternalEffect =
    std::variant<StartInstance, EndInstance, CheckReady, ReadMembers, TellOf, WriteMembersFile,
                 SendPings, PassTo, MembersApplied, ExternalDrained, GiveUp>;

class ExternalRouter {
 public:
  static constexpr Duration kCheckInterval = std::chrono::milliseconds(100);
  static constexpr Duration kSettle = std::chrono::milliseconds(200);  // Changes come in crowds.
  static constexpr Duration kTellTimeout = std::chrono::seconds(10);
  static constexpr Duration kTellAgain = std::chrono::seconds(2);
  static constexpr Duration kReviewInterval = std::chrono::seconds(5);  // Of whom it knows.
  static constexpr Duration kPingInterval = std::chrono::seconds(2);
  static constexpr Duration kBackoffMin = std::chrono::milliseconds(100);
  static constexpr Duration kBackoffMax = std::chrono::seconds(5);
  static constexpr uint32_t kDeathsMax = 5;   // In a row, without having served.
  static constexpr size_t kInstancesMax = 4;  // Beyond, those that drain are ended at once.

  // `plain`: the job is not disaggregated.
  ExternalRouter(const RouterRecipe& recipe, bool plain) : recipe_(recipe), plain_(plain) {}

  void step(const ExternalEvent& event, Instant now, std::vector<ExternalEffect>& effects);
  // TimeWent is due then; kNever: nothing to wait for.
  Instant next_wakeup() const;

  bool serving() const { return find(State::kServing) != nullptr; }

 private:
  enum class State { kStarting, kServing, kEnding };
  using Members = std::map<std::string, net::WorkerEntry>;  // By the name that the recipe gives.

  struct Instance {
    InstanceId id;
    State state = State::kStarting;
    Members told;        // Whom it was started with, and told of since.
    bool ready = false;  // It has said so; next, its members are read back.
    bool asked = false;  // An answer is under way.
    Instant next_check = kNever;
    Instant tell_again{};
    Instant deadline = kNever;  // Of starting, of taking in a change, or of draining.
  };

  void on(const MembersChanged& event);
  void on(const InstanceExited& event);
  void on(const ReadyChecked& event);
  void on(const MembersRead& event);
  void on(const DrainAsked& event);
  void on(const TimeWent&) {}

  void check_deadlines();
  void missed_deadline(Instance& instance);
  void reconcile();
  void changed(Instance& serving);
  void check(Instance& instance);
  void start();
  void serve(Instance& instance);
  void end(Instance& instance, bool at_once);
  void died(const std::string& how);
  void review(Instance& serving, const std::set<std::string>& names);
  void tell(Instance& serving, const std::set<std::string>& names);
  void ping();
  void applied();
  bool complete() const;
  Instant start_due() const;
  bool reads_back() const { return !recipe_.members_path.empty(); }
  bool is_current(const Instance& instance) const;
  std::vector<net::WorkerEntry> workers() const;
  const Instance* find(State state) const;
  Instance* find(State state);
  Instance* find(InstanceId id);
  void emit(ExternalEffect effect) { effects_->push_back(std::move(effect)); }

  const RouterRecipe& recipe_;
  const bool plain_;
  std::vector<Instance> instances_;  // Oldest first.
  uint64_t instances_made_ = 0;
  Members wanted_;
  uint64_t version_ = 0;
  uint64_t version_applied_ = 0;
  Instant changed_at_{};
  Instant not_before_{};  // A start after a death.
  Instant next_ping_ = kNever;
  uint32_t deaths_ = 0;  // In a row.
  bool draining_ = false;
  bool given_up_ = false;

  // Of the step in progress.
  Instant now_{};
  std::vector<ExternalEffect>* effects_ = nullptr;
};

}  // namespace pdjob::router
