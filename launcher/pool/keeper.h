// Keeper: the core that shares the nodes of a pool among jobs. It queues jobs, gives each of them
// its shares all together or none, starts the agent of each share and the job's launcher, and takes
// the shares back.
//
//   queued --(all its shares are free)--> running --(launcher ended, cancelled)--> ending --> ended
//      ^                                     |                                     |  ^
//      +---------------------(preempted)-----|-------------------------------------+  |
//                                            +--(a batch is done)--> warm ------------+
//
// A share is free again only when no process of it can run any more: the node said that it ended,
// or came back without it. A node with a process that the keeper does not know gets nothing before
// that has ended. So nothing is promised twice, whoever dies when: the ledger (pool_ledger.h) is on
// disk before the effects of a step are carried out, the next keeper hears from the agents what
// runs there, and agents obey no keeper that a later one has replaced (agents/agent_session.h).
//
// The job with the highest priority is first, and of equal ones the oldest. A job that must wait
// holds up the later ones of its queue, and no others. A job that serves preempts batches of lower
// priority if that makes room for it; everybody waits until it has it.
//
// A warm job is a batch that is done, whose workers stay on its shares for a while
// (launcher.keep). The next job of its name takes them over with all that runs there, if it needs
// the same workers. To all others the warm job gives way. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/result.h"
#include "common/time.h"
#include "launcher/job/events.h"
#include "launcher/placement/node.h"
#include "launcher/pool/pool_job.h"
#include "launcher/pool/pool_ledger.h"

namespace pdjob::launcher {

struct KeeperSetting {
  // Where launchers listen for the agents of their shares, one port for each job.
  uint16_t first_port = 7800;
  uint16_t last_port = 7899;
  // How long processes outlive a keeper or a connection that is lost, by the agents' clocks. No
  // process of a node that was lost longer than that can run any more.
  Duration orphan_timeout = std::chrono::minutes(10);
  Duration lease = std::chrono::seconds(5);  // Of the agents.
};

// The shares of a job on these nodes, which have what is free. kUnavailable: there is no room; the
// message says what is short. Pure: the same question gets the same answer.
using SharePlacer =
    std::function<Result<std::vector<Share>>(const PoolJobOrder&, const std::vector<Node>& free)>;

// --- events: NodeJoined, NodeLost, Spawned, SpawnFailed and ProcessExited (job/events.h), and
struct JobSubmitted {
  PoolJobOrder order;
};
struct JobCancelled {
  std::string name;
};
struct QuotaSet {
  QueueQuota quota;
};
using KeeperEvent = std::variant<NodeJoined, NodeLost, Spawned, SpawnFailed, ProcessExited,
                                 JobSubmitted, JobCancelled, QuotaSet, TimePassed>;

// --- effects, to be executed in order. The jobs and their processes are those of the ledger.
struct StartLauncher {
  uint64_t job = 0;
};
struct StartShare {
  uint64_t job = 0;
  uint64_t share = 0;  // Its number.
};
struct EndProcess {
  std::string node;
  Incarnation incarnation;
  Signal signal = Signal::kTerminate;
};
struct SayOfPool {
  std::string text;
};
using KeeperEffect = std::variant<StartLauncher, StartShare, EndProcess, SayOfPool>;

class Keeper {
 public:
  // `ledger`: what an earlier keeper left; its nodes have still to join.
  Keeper(KeeperSetting setting, SharePlacer placer, PoolLedger ledger, Instant now);

  void step(const KeeperEvent& event, Instant now, std::vector<KeeperEffect>& effects);
  Instant next_wakeup() const;

  const PoolLedger& ledger() const { return ledger_; }
  // Null: there is none that has not ended.
  const PoolJob* job_called(const std::string& name) const;
  const PoolJob* job(uint64_t id) const;
  // The nodes that are here.
  std::vector<Node> nodes() const;
  // Null: it is not here.
  const Node* node(const std::string& name) const;
  // With what no job holds, or none but these.
  std::vector<Node> free_nodes(const std::set<uint64_t>& without = {}) const;
  // Why this job cannot be taken; empty: it can.
  std::string objection(const PoolJobOrder& order) const;

 private:
  using Turn = pdjob::Turn<KeeperEffect>;
  struct NodeState {
    Node node;
    std::set<Incarnation> strays;  // Nobody's processes, which were told to end.
  };

  void on(const NodeJoined& event, Turn& turn);
  void on(const NodeLost& event, Turn& turn);
  void on(const Spawned& event, Turn& turn);
  void on(const SpawnFailed& event, Turn& turn);
  void on(const ProcessExited& event, Turn& turn);
  void on(const JobSubmitted& event, Turn& turn);
  void on(const JobCancelled& event, Turn& turn);
  void on(const QuotaSet& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);

  void process_ended(const std::string& node, Incarnation incarnation, const std::string& how,
                     Turn& turn);
  void launcher_ended(PoolJob& job, const std::string& how, Turn& turn);
  void batch_done(PoolJob& job, const std::string& why, Turn& turn);

  // Starts and ends what is due, of all jobs.
  void work(Turn& turn);
  void offer_soon(Instant now);
  Instant earliest(Instant now) const;
  void run(PoolJob& job, Turn& turn);
  void end_further(PoolJob& job, Turn& turn);
  void stay_warm(PoolJob& job, Turn& turn);
  void move_share(PoolJob& job, HeldShare& held, Turn& turn);
  void move_launcher(PoolJob& job, Turn& turn);
  void begin_ending(PoolJob& job, bool comes_back, const std::string& why, Turn& turn);
  static void tell_to_end(PoolProcess& process, Duration patience, Turn& turn);
  static void kill_if_due(PoolProcess& process, Turn& turn);

  void schedule(Turn& turn);
  bool start(PoolJob& job, const std::vector<Share>& shares, Turn& turn);
  bool make_room_for(PoolJob& job, Turn& turn);
  PoolJob* one_before(const PoolJob& job);
  bool take_over(PoolJob& before, PoolJob& job, Turn& turn);
  std::vector<PoolJob*> waiting();
  std::string over_quota(const PoolJob& job, const std::vector<Share>& shares) const;
  // Where a launcher with this door can run: on the first of these nodes, or else anywhere.
  std::string node_for_launcher(const PoolJob& job, const std::vector<std::string>& first) const;
  // 0: there is none. Those of jobs `without` count as free.
  uint16_t free_port(const std::set<uint64_t>& without = {}) const;
  bool stays_away(const PoolProcess& process, Instant now) const;
  bool is_here(const std::string& node) const { return nodes_.contains(node); }
  Instant lost_since(const std::string& node) const;
  // Nothing that ran on a node that is lost since then can run any more.
  Instant surely_over(const std::string& node) const;
  Incarnation next_incarnation() { return {++ledger_.incarnations}; }
  void forget_old_jobs();

  const KeeperSetting setting_;
  const SharePlacer placer_;
  PoolLedger ledger_;
  std::map<std::string, NodeState> nodes_;  // Those that are here.
  std::map<std::string, Instant> lost_;     // Since when. With processes of the ledger.
  Instant offer_due_{};  // When jobs are offered what is free; kNever: nothing has changed.
  Instant due_ = kNever;
};

}  // namespace pdjob::launcher
