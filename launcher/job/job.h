// The Job core: which processes of a job should run, their state, and what to do next. It
// - starts all processes;
// - waits until each has registered, the router has confirmed it, and a probe request went through;
// - replaces processes that die or hang;
// - tells routers which processes are in the job;
// - stops all in order.
// Each worker serves one of the job's models. A probe uses workers of one model only.
//
//   job:      starting --> ready --> draining --> done
//                 |                     ^           ^
//                 |---------------------|           |
//                 |--------- (failed) --------------|
//
//   process:  waiting --> starting --> registered --> ready --> draining --> exited
//                            ^  |          |            |
//                            |  |          v            v
//                            |  |         hung <---------
//                            |  v          v            |
//                           backoff <--------------------
//
// A worker is hung when its engine has work and makes no progress for progress_timeout, though
// heartbeats arrive. It leaves the membership at once, writes its stacks to its log, and is killed.
// Routers learn the cause of each loss: a crash, a hang, or something from outside. A request may
// be to blame for the first two only.
//
// A process that dies goes to `backoff`. It starts again as a new incarnation, with a new engine
// id. Once the job drains, it goes to `exited`. The core uses no files, sockets or machines. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/id.h"
#include "common/time.h"
#include "launcher/plan/restart_policy.h"
#include "net/control/message.h"

namespace pdjob::launcher {

// One start of one process; never reused.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;

enum class JobState { kStarting, kReady, kDraining, kDone };
enum class ProcessState {
  kWaiting,
  kStarting,
  kRegistered,
  kReady,
  kHung,
  kDraining,
  kExited,
  kBackoff
};
const char* to_string(JobState state);
const char* to_string(ProcessState state);

enum class Signal { kTerminate, kKill, kDumpStacks };
const char* to_string(Signal signal);

// --- events

struct Started {};
struct Spawned {
  Incarnation incarnation;
  int64_t pid = 0;
};
struct SpawnFailed {
  Incarnation incarnation;
  std::string reason;
};
struct ProcessExited {
  Incarnation incarnation;
  std::string how;       // "exit code 1", "signal 9 (Killed)"
  bool crashed = false;  // As net::ChildExit::crashed() says.
};
// From a process, identified by its key.
struct MessageArrived {
  std::string peer;
  net::Message message;
};
struct ProbeSucceeded {
  uint64_t probe = 0;
  uint64_t kv_bytes = 0;
};
struct ProbeFailed {
  uint64_t probe = 0;
  std::string reason;
};
struct StopAsked {
  int exit_code = 0;
};
struct TimePassed {};

using Event = std::variant<Started, Spawned, SpawnFailed, ProcessExited, MessageArrived,
                           ProbeSucceeded, ProbeFailed, StopAsked, TimePassed>;

// --- effects, to be executed in order

struct Spawn {
  std::string name;
  Incarnation incarnation;
  std::string engine_id;
};
struct SendSignal {
  Incarnation incarnation;
  Signal signal = Signal::kTerminate;
};
struct Send {
  std::string peer;
  net::Message message;
};
// One token through this router, pinned to these workers. `prefill` is empty if the model is not
// disaggregated.
struct Probe {
  uint64_t probe = 0;
  std::string model;
  std::string router;
  std::string prefill;
  std::string decode;
};
struct ReportReady {};
// The job accepts no more requests: close the listening sockets held for restarts.
struct CloseDoors {};
struct Finish {
  int exit_code = 0;
  std::string reason;   // Empty after a clean stop.
  std::string culprit;  // The process whose log explains more; may be empty.
};

using Effect = std::variant<Spawn, SendSignal, Send, Probe, ReportReady, CloseDoors, Finish>;

struct JobTiming {
  Duration start_timeout = std::chrono::minutes(5);
  Duration stop_timeout = std::chrono::seconds(30);
  Duration heartbeat_timeout = std::chrono::seconds(3);
  Duration hang_timeout = std::chrono::seconds(15);
  Duration progress_timeout = std::chrono::minutes(2);
  Duration probe_retry = std::chrono::milliseconds(100);
  Duration membership_retry = std::chrono::milliseconds(500);  // Until a router confirms it.
  RestartConfig restart;
};

struct ProcessPlan {
  std::string name;
  net::Role role = net::Role::kBoth;
  std::string model;  // The model it serves; empty for a router.
};

// The state of one process, as status shows it.
struct Process {
  std::string name;
  net::Role role = net::Role::kBoth;
  std::string model;  // As planned.
  ProcessState state = ProcessState::kWaiting;
  Incarnation incarnation;  // 0: never started.
  std::string engine_id;
  int64_t pid = 0;
  uint32_t restarts = 0;
  Instant since{};  // Start of this state.
  Instant last_heartbeat{};
  bool suspected = false;     // No heartbeat for heartbeat_timeout: gets no new requests.
  bool stands_still = false;  // Reported by the last heartbeat; a second one in a row decides.
  bool killed = false;        // By us; its exit has not been reported yet.
  net::WorkerEntry entry;     // As registered.
  net::WorkerLoad load;
  std::optional<net::WorkerEntry> member;          // As told to routers; empty: not a member.
  uint64_t changed_in = 0;                         // The membership version of that change.
  uint64_t membership_applied = 0;                 // Routers: the last version it confirmed.
  Instant membership_sent{};                       // Routers: when it was last sent one.
  net::LossCause loss = net::LossCause::kUnknown;  // For this incarnation.
  std::optional<net::Departure> departure;         // For the last incarnation that was a member.
  uint32_t crashes = 0;
  uint32_t hangs = 0;
  std::string last_exit;
  // The deadline of this state: the time of the next start, or the limit for starting or hanging.
  // kNever in all other states.
  Instant deadline = kNever;
  RestartPolicy restart_policy{RestartConfig{}};

  bool alive() const;  // Spawned, and its exit has not been reported yet.
  bool serving() const {
    return state == ProcessState::kRegistered || state == ProcessState::kReady;
  }
};

class Job {
 public:
  // `nonce` distinguishes the engine ids of this run of the job from those of other runs.
  Job(std::vector<ProcessPlan> plan, const JobTiming& timing, std::string nonce);

  void step(const Event& event, Instant now, std::vector<Effect>& effects);
  // The time when TimePassed is due; kNever: no timer is needed.
  Instant next_wakeup() const;

  JobState state() const { return state_; }
  const std::vector<Process>& processes() const { return processes_; }
  // Says, for people, what a starting job still waits for; empty if it waits for nothing.
  std::string waiting_for() const;

 private:
  struct ProbeInFlight {
    uint64_t id = 0;
    std::vector<Incarnation>
        // Processes that become ready if it succeeds: a router, a prefill worker and a decode
        // worker.
        through;
    std::string path;  // "prefill-0 -> decode-0"
    bool must_move_kv = false;
  };

  struct ProbePath {
    const Process* router = nullptr;
    const Process* prefill = nullptr;  // Null if the model is not disaggregated.
    const Process* decode = nullptr;
  };

  void on(const Started& event);
  void on(const Spawned& event);
  void on(const SpawnFailed& event);
  void on(const ProcessExited& event);
  void on(const MessageArrived& event);
  void on(const ProbeSucceeded& event);
  void on(const ProbeFailed& event);
  void on(const StopAsked& event);
  void on(const TimePassed& event);

  void on_registered(Process& process, const net::Registered& message);
  void on_heartbeat(Process& process, const net::HeartbeatSent& message);
  void on_applied(Process& process, const net::MembershipApplied& message);

  void spawn(Process& process);
  void died(Process& process, const std::string& how, net::LossCause cause);
  void check_process(Process& process);
  void check_heartbeat(Process& process);
  void check_progress(Process& process);
  void forgive_own_sleep();
  void enter(Process& process, ProcessState state, Instant deadline = kNever);

  // `since`: only changes after that version; 0: the whole list.
  net::Membership membership(uint64_t since) const;
  void publish_membership();
  bool update_member(Process& process);
  void send_membership(Process& router, uint64_t since);
  void report_load(const Process& worker);

  std::optional<ProbePath> probe_path() const;
  std::optional<ProbePath> probe_path(const std::string& model) const;
  void probe_next();
  void probe_failed(const std::string& reason);
  void check_ready();

  void drain_next();
  void drain(Process& process);
  void kill_all();
  void fail(const std::string& reason, const std::string& culprit);
  void finish_if_all_exited();

  void emit(Effect effect) { effects_->push_back(std::move(effect)); }
  Process* find(Incarnation incarnation);
  Process* find(const std::string& name);
  const Process* pick_for_probe(bool (*fits)(net::Role), const std::string& model) const;

  const JobTiming timing_;
  const std::string nonce_;
  JobState state_ = JobState::kStarting;
  std::vector<Process> processes_;
  std::vector<std::string> models_;  // Each once; they are probed in turn.
  // The next model to probe. Turns keep a model whose probes fail from holding up the others.
  size_t next_model_ = 0;
  Instant start_deadline_ = kNever;
  Instant drain_deadline_ = kNever;   // The deadline that processes are told.
  Instant stop_deadline_ = kNever;    // The remaining processes are killed then.
  Instant wakeup_promised_ = kNever;  // next_wakeup() after the last step.
  uint64_t incarnations_made_ = 0;
  uint64_t membership_version_ = 1;
  uint64_t probes_made_ = 0;
  std::optional<ProbeInFlight> probe_;  // One at a time.
  Instant probe_not_before_{};
  std::string last_probe_error_;
  int exit_code_ = 0;
  std::string failure_;
  std::string culprit_;

  // Valid during a step.
  Instant now_{};
  std::vector<Effect>* effects_ = nullptr;
};

}  // namespace pdjob::launcher
