// The Job core decides which processes of a job should run, where, and what to do next.
//
// It starts all processes, and places those that have no node. It waits until each has registered,
// the routers have confirmed it, and a probe went through. It replaces processes that die or hang.
// Once ready, it makes its workers what its groups say (groups.h): it adds and retires them,
// changes their roles, and replaces those that do something else. It follows nodes that come and
// go. It stops all in order.
//
// It is composed of three cores: supervision.h (the life of one process), membership_log.h (who is
// told what) and probing.h (who is proved). Each worker serves one of the job's models.
//
//   starting --> ready --> draining --> done
//      |                     ^           ^
//      |---------------------|           |
//      |--------- (failed) --------------|
//
// A job starts until all its processes are ready. One that died too often is not waited for, if its
// role has another one for that model: it is tried again with back-off, for ever. Without another
// one, a starting job fails. A ready job never does. Processes that wait for a node are not waited
// for if their group has its minimum.
//
// In a rollout job, a worker serves only with the weights that were chosen last. One that registers
// with others is killed, and starts again with the right ones.
//
// A Job may begin with the record of an earlier one, whose launcher is gone (job_adoption.cc).
//
// A heartbeat costs O(1), however many processes there are. The core uses no files, sockets or
// machines. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/limits.h"
#include "launcher/job/events.h"
#include "launcher/job/groups.h"
#include "launcher/job/job_record.h"
#include "launcher/job/membership_log.h"
#include "launcher/job/probing.h"
#include "launcher/job/process.h"
#include "launcher/job/supervision.h"
#include "launcher/job/wakeups.h"
#include "launcher/placement/node.h"
#include "launcher/placement/node_trust.h"
#include "launcher/placement/placement.h"

namespace pdjob::launcher {

enum class JobState { kStarting, kReady, kDraining, kDone };
const char* to_string(JobState state);

struct JobSetting {
  std::vector<Node> nodes;  // Empty: one node without limits.
  std::vector<JobGroup> groups;
  bool foreign_router = false;  // It cannot be told which workers to use.
  net::WeightSource weights;    // Of all workers; without a version: those of the job file.
  // What each store is, without a name and a place. Nothing: the job has none.
  std::optional<ProcessPlan> store = {};
  uint64_t launcher = 0;  // Of this run's launchers, which one this is.
  // Of an earlier launcher of the run; in place of the nodes and of the plan, or of what the plan
  // has in common with it.
  std::optional<JobRecord> record;
};

class Job {
 public:
  // `nonce` distinguishes the engine ids of this run of the job from those of other runs.
  Job(std::vector<ProcessPlan> plan, const JobTiming& timing, std::string nonce,
      const JobSetting& setting = {});

  void step(const Event& event, Instant now, std::vector<Effect>& effects);
  // The time when TimePassed is due; kNever: no timer is needed.
  Instant next_wakeup() const;

  JobState state() const { return state_; }
  // In the order in which they were planned or added, without those that were retired.
  const std::list<Process>& processes() const { return processes_; }
  const Process* find(std::string_view name) const;
  const net::WeightSource& weights() const { return weights_; }
  // The workers that it should have.
  const std::vector<JobGroup>& groups() const { return groups_; }
  // What another launcher needs to go on with this job.
  JobRecord record() const;
  // While nodes of an earlier launcher have not joined yet.
  bool adopting() const { return adopt_deadline_ != kNever; }
  // Says, for people, what a starting job still waits for; empty if it waits for nothing.
  std::string waiting_for() const;
  // How many more such processes the nodes have room for, up to `enough`; all of them if the nodes
  // are unknown.
  uint64_t room(const Demand& demand, uint64_t enough = limits::kWorkersMax) const;
  // The node where it runs; null: it has none, or nodes are unknown.
  const Node* node_of(const Process& process) const { return placement_.node(process.place.node); }
  // Whether a node that is not trusted less than its own has room for it.
  bool has_room_elsewhere(const Process& process, Instant now) const;
  const NodeTrust& trust() const { return trust_; }
  // Says, for people, what is missing for one more such process; empty: there is room.
  std::string lack(const Demand& demand) const;
  // Null: nodes are unknown.
  const Placement* placement() const { return places_ ? &placement_ : nullptr; }

 private:
  using Position = std::list<Process>::iterator;

  void on(const Started& event, Turn& turn);
  void on(const Spawned& event, Turn& turn);
  void on(const SpawnFailed& event, Turn& turn);
  void on(const ProcessExited& event, Turn& turn);
  void on(const MessageArrived& event, Turn& turn);
  void on(const ProbeSucceeded& event, Turn& turn);
  void on(const ProbeFailed& event, Turn& turn);
  void on(const StopAsked& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);
  void on(const NodeJoined& event, Turn& turn);
  void on(const NodeLost& event, Turn& turn);
  void on(const ProcessSeen& event, Turn& turn);
  void on(const WeightsChosen& event, Turn& turn);
  void on(const ReplaceAsked& event, Turn& turn);
  void on(const GroupsChanged& event, Turn& turn);
  void on(const NodeBlamed& event, Turn& turn);

  void take(const JobRecord& record);
  void begin_adoption(Turn& turn);
  void take_stock(const NodeJoined& event, Turn& turn);
  void give_up_absent(Turn& turn);
  void end_adoption(Turn& turn);

  bool runs() const {
    return started_ && (state_ == JobState::kStarting || state_ == JobState::kReady);
  }
  Process& add(ProcessPlan plan);
  void start(Process& process, Turn& turn);
  void start_waiting(Turn& turn);
  // Starts those that wait, and takes the steps that lead to what the groups say.
  void converge(Turn& turn);
  void choose_spares();
  bool is_surplus(const Process& process, Instant now) const;
  bool take(const GroupStep& step, Turn& turn);
  void start_again(Process& process, net::Role role, Turn& turn);
  // Its place, or another one if it has none; false: it must wait for a node.
  bool find_place(Process& process, Instant now);
  void blame(const std::string& node, double weight, Turn& turn);
  // Its node is trusted less than another one with room.
  bool should_move(const Process& process, Instant now) const;
  void give_back_place(Process& process);
  // Processes that came or went may change for the others whether they share their cores.
  void note_shared_cores();
  void add_stores(Turn& turn);
  void end_store(Process& process, Turn& turn);
  void follow_group(Process& process);
  void follow_changed_group(Process& process);
  bool may_wait(const Process& process) const;
  const JobGroup* group_of(net::Role role, const std::string& model) const;
  bool keeps_model(const Process& process, net::Role next) const;
  // It was ordered to change its role without a new start, and speaks as that engine.
  static bool has_other_role(const Process& process, const std::string& engine_id);
  void changed_role(Process& process, const net::Registered& message, Turn& turn);
  void dismiss(Process& process, Fate fate, Turn& turn);
  void begin_leaving(Process& process, Fate fate, Turn& turn);
  bool group_changes(const Process& process) const;
  void part_died(Process& process, const std::string& node, const std::string& how,
                 net::LossCause cause, Turn& turn);
  void died(Process& process, const std::string& how, net::LossCause cause, Turn& turn);
  void ended(Process& process, Turn& turn);
  void remove(Process& process, Turn& turn);
  void beat(Process& process, const net::HeartbeatSent& message, Turn& turn);
  void drain_those_known_to_leave(Turn& turn);
  void check(Process& process, Turn& turn);
  void start_time_is_over(Turn& turn);
  void forgive_own_sleep(Instant now);
  // Everything that is derived from a process: call it after each change, except of heartbeats.
  void settle(Process& process);

  void check_ready(Turn& turn);
  bool any_peer(const Process& process, bool (*fits)(const Process&)) const;
  void become_ready(Turn& turn);
  // It stays warm for the next launcher, while the job ends.
  bool stays(const Process& process) const;
  void drain_next(Turn& turn);
  void kill_all(Turn& turn);
  void compare_model(Process& process, Turn& turn);
  bool is_current(const Process& process) const;
  bool has_other_weights(const Process& process, const net::WorkerEntry& entry) const;
  void fail(const std::string& reason, const std::string& culprit, Turn& turn);
  void finish_if_all_exited(Turn& turn);

  Process* living(Incarnation incarnation);
  // Null: it does not run on that node.
  Process* living_on(const std::string& node, Incarnation incarnation);
  Process* find_mutable(std::string_view name);

  const JobTiming timing_;
  const bool places_;  // The nodes are known.
  std::vector<JobGroup> groups_;
  net::WeightSource weights_;
  const std::optional<ProcessPlan> store_;
  JobState state_ = JobState::kStarting;
  bool started_ = false;
  std::list<Process> processes_;
  std::unordered_map<std::string_view, Position> by_name_;  // Names of the processes themselves.
  std::unordered_map<uint64_t, Process*> by_incarnation_;
  Placement placement_;
  NodeTrust trust_;
  Supervision supervision_;
  MembershipLog membership_;
  Probing probing_;
  Wakeups wakeups_;
  Instant converge_due_ = kNever;  // A worker with another spec than its group's is looked at.
  uint64_t places_noted_ = 0;      // Placement::changes() at the last note_shared_cores().
  uint64_t stores_noted_ = 0;      // The same at the last add_stores().
  bool room_made_ = false;         // Since waiting processes were last looked at.
  bool spares_due_ = false;        // A process or a group has changed.
  std::vector<Process*> leaving_;  // They serve until all routers know of it.
  std::unordered_set<const Process*> not_ready_;
  uint64_t added_ = 0;
  std::set<std::string> absent_;  // Nodes of the record that have not joined yet.
  uint64_t adopted_ = 0;
  std::deque<StopAsked> stops_asked_;  // While it adopts.
  Instant adopt_deadline_ = kNever;
  Instant start_deadline_ = kNever;
  Instant drain_deadline_ = kNever;   // The deadline that processes are told.
  Instant stop_deadline_ = kNever;    // The remaining processes are killed then.
  Instant wakeup_promised_ = kNever;  // next_wakeup() after the last step.
  bool keeps_warm_ = false;           // As the job was told to stop.
  int exit_code_ = 0;
  std::string failure_;
  std::string culprit_;
};

}  // namespace pdjob::launcher
