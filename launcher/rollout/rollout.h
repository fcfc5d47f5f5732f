// Rollout: carries out the orders of trainers on the whole fleet: pauses, updates of the weights,
// new names for them. One order runs at a time.
//
//   update:  preparing --> closing --> applying --> publish, reopen
//               |             |           |
//               v             v           v  (deadline without a usable fleet)
//            refused:      reopened:   answered 500; it goes on, and reopens once the fleet can
//            serve
//         nothing changed  nothing changed
//
// - preparing: each worker reads the new weights beside those in use. A worker that refuses them
//   ends the order, and nothing has changed. All workers must have read the same bytes. A worker
//   that dies meanwhile is not asked again: the weights may have killed it.
// - closing: routers admit no new request, and report when no request runs.
// - applying: the Job core makes each worker serve with the new weights, in place or by a new start
//   (launcher/job/job.h). From then on, no worker with other weights is a member.
// - The fleet reopens once all workers that served before serve the new weights. A worker that
//   fails is not waited for if its role has another one. The answer names it. Another launcher
//   goes on with an update that was being applied.
//
// A version names one set of weights only, as long as it is among the latest kVersionsKept. An
// order that has changed nothing yet can be cancelled.
//
// Orders may be repeated. One that was answered is answered again; one that equals the running one
// shares its answer; an update to the weights in use changes nothing. Messages to routers and
// workers are repeated until they are answered. A router begins with admission closed, until it is
// told. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/time.h"
#include "launcher/job/process.h"
#include "net/control/message.h"

namespace pdjob::launcher {

struct RolloutTiming {
  Duration prepare_timeout = std::chrono::minutes(10);
  Duration quiesce_timeout = std::chrono::minutes(10);
  Duration apply_timeout = std::chrono::minutes(5);
};

// A version, and the digest of the weights that it names.
using NamedWeights = std::pair<std::string, std::string>;
inline constexpr size_t kVersionsKept = 256;

// What another launcher needs to go on.
struct RolloutRecord {
  bool paused = false;
  net::PauseMode mode = net::PauseMode::kWait;
  uint64_t updates = 0;
  std::string asked_path;    // Of the last update that was applied, as it was asked.
  bool applying = false;     // The fleet is closed until it can serve the weights.
  bool keeps_pause = false;  // With `applying`: it stays paused then.
  // That the fleet has served with, the latest last; at most kVersionsKept.
  std::vector<NamedWeights> versions;
  friend bool operator==(const RolloutRecord&, const RolloutRecord&) = default;
};

// Who asks. `peer`: a router's name; empty: the launcher's own page.
struct Ticket {
  std::string peer;
  uint64_t id = 0;
  friend auto operator<=>(const Ticket&, const Ticket&) = default;
};

// --- events
struct OrderReceived {
  Ticket from;
  net::OrderAsked order;
};
struct RouterSeen {
  std::string name;
  std::string engine_id;
};
struct WorkerSeen {
  std::string name;
  std::string engine_id;
  net::Role role = net::Role::kBoth;
  ProcessState state = ProcessState::kWaiting;
  std::string version;  // Of its weights, as registered.
  std::string digest;
  std::string last_exit;

  bool serves() const {
    return state == ProcessState::kRegistered || state == ProcessState::kReady;
  }
};
// The processes of the job now: routers that serve, and workers that are to stay.
struct FleetSeen {
  bool ready = false;  // The job.
  std::vector<RouterSeen> routers;
  std::vector<WorkerSeen> workers;
};
struct WorkerPrepared {
  std::string worker;
  net::WeightsPrepared answer;
};
struct RouterAnswered {
  std::string router;
  net::AdmissionApplied answer;
};

using RolloutEvent =
    std::variant<OrderReceived, FleetSeen, WorkerPrepared, RouterAnswered, TimePassed>;

// --- effects
struct TellProcess {
  std::string peer;
  net::Message message;
};
// The Job core is to serve with these weights. `prepared`: by engine id, the order that prepared
// them there; 0: the worker keeps its weights. Other workers start again.
struct ApplyWeights {
  net::WeightSource weights;
  std::map<std::string, uint64_t> prepared;
};
struct AnswerOrder {
  Ticket to;
  net::OrderAnswered answer;
};
struct OrderNoted {  // For the log and people.
  std::string text;
};

using RolloutEffect = std::variant<TellProcess, ApplyWeights, AnswerOrder, OrderNoted>;

// How long the parts of the last update took.
struct UpdateParts {
  Duration preparing{};
  Duration closing{};
  Duration applying{};
  uint64_t bytes = 0;  // Of the file.
};

class Rollout {
 public:
  // `launcher`: of this run's launchers, which one this is. Numbers of orders and epochs follow on
  // those of earlier ones.
  Rollout(const RolloutTiming& timing, net::WeightSource weights, const RolloutRecord& record,
          uint64_t launcher);

  void step(const RolloutEvent& event, Instant now, std::vector<RolloutEffect>& effects);
  Instant next_wakeup() const;

  // The answer to kReport.
  net::OrderAnswered report() const;
  RolloutRecord record() const;
  // The weights that the fleet serves with.
  const net::WeightSource& weights() const { return published_; }
  bool closed() const { return closed_; }
  uint64_t epoch() const { return epoch_; }  // Of net::AdmissionAsked.
  const UpdateParts& last_update() const { return parts_; }
  const char* phase() const;

 private:
  // Statuses of answers.
  static constexpr uint16_t kDone = 200;
  static constexpr uint16_t kRefused = 400;
  static constexpr uint16_t kBusy = 409;
  static constexpr uint16_t kFailed = 500;
  static constexpr uint16_t kUnavailable = 503;
  static constexpr uint16_t kTooSlow = 504;

  enum class Phase { kIdle, kPreparing, kClosing, kApplying };
  struct Router {
    std::string engine_id;
    bool applied = false;  // The present epoch.
    uint64_t running = 0;
  };
  using Turn = pdjob::Turn<RolloutEffect>;

  void on(const OrderReceived& event, Turn& turn);
  void on(const FleetSeen& event, Turn& turn);
  void on(const WorkerPrepared& event, Turn& turn);
  void on(const RouterAnswered& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);

  std::optional<std::string> refusal_of(const net::OrderAsked& order, uint16_t& status) const;
  bool changes_nothing(const net::OrderAsked& order) const;
  void cancel(const OrderReceived& event, Turn& turn);
  // True if it changes the pause that is being waited for.
  bool amend_pause(const OrderReceived& event, Turn& turn);
  void begin(const OrderReceived& event, Turn& turn);
  void enter(Phase phase, Duration limit, Turn& turn);
  void ask_workers(Turn& turn);
  void set_admission(bool closed, Turn& turn);
  void ask_routers(Turn& turn);
  // Looks whether the present phase is done.
  void proceed(Turn& turn);
  void end_preparing(Turn& turn);
  void end_closing(Turn& turn);
  void apply(Turn& turn);
  void publish(Turn& turn);
  // Nothing has changed: the fleet goes on as before the order.
  void give_up(uint16_t status, const std::string& why, Turn& turn);
  void overdue(Turn& turn);
  void answer_waiting(uint16_t status, const std::string& message, Turn& turn);
  void answer(const Ticket& to, uint16_t status, const std::string& message, Turn& turn);
  void note(std::string text, Turn& turn);

  // Each router has answered in this epoch, ...
  bool routers_applied() const;
  bool quiet() const;  // ... and no request runs.
  // It died after it was asked to read the weights.
  bool fell(const WorkerSeen& worker) const;
  bool serves_new(const WorkerSeen& worker) const;
  bool can_serve() const;  // Each role has a worker with the new weights.
  bool moves() const;      // A worker is about to serve with the new weights.
  std::vector<net::WorkerTrouble> troubles(const net::WeightSource& weights) const;
  const std::string& digest_in_use() const;
  void remember(const std::string& version, const std::string& digest);
  bool names_others(const std::string& version, const std::string& digest) const;
  std::string next_name() const;  // For weights that their order does not name.

  const RolloutTiming timing_;
  FleetSeen fleet_;
  std::map<std::string, Router> routers_;
  net::WeightSource published_;
  net::WeightSource chosen_;       // That the Job core was told last.
  std::string asked_path_;         // RolloutRecord::asked_path.
  uint64_t updates_ = 0;           // That were applied.
  bool unpublished_ = false;       // The fleet does not serve `chosen_` yet.
  net::OrderAsked applied_order_;  // The one of `chosen_`.
  Instant applied_at_{};

  bool paused_ = false;  // By an order: admission stays closed between orders.
  net::PauseMode mode_ = net::PauseMode::kWait;
  bool closed_ = false;
  uint64_t epoch_ = 0;
  Instant routers_asked_{};

  Phase phase_ = Phase::kIdle;
  Instant phase_began_{};
  Instant deadline_ = kNever;
  net::OrderAsked order_;        // That runs, or ran last.
  std::vector<Ticket> waiting_;  // For its answer.
  uint64_t orders_ = 0;          // The number of the last one, for workers.
  std::map<std::string, net::WeightsPrepared> prepared_;  // By engine id.
  std::map<std::string, std::string> asked_;  // To prepare: engine ids, by the workers' names.
  Instant workers_asked_{};
  net::WeightSource next_;             // From kClosing on.
  std::set<std::string> old_engines_;  // In kApplying: that served before.
  std::set<std::string> expected_;     // In kApplying: workers that served before, by name.
  Instant grace_due_ = kNever;         // In kApplying: stragglers are waited for until then.
  UpdateParts parts_;
  std::vector<NamedWeights> versions_;  // RolloutRecord::versions.
  std::deque<std::pair<Ticket, net::OrderAnswered>> answered_;
};

}  // namespace pdjob::launcher
