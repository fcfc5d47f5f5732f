// JobRunner: the shell of the Job core. It opens the job's doors, gives the core's orders to the
// cluster, the control plane and the prober, and brings their news back. Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/crypto/job_keys.h"
#include "kvtransfer/link/link_keys.h"
#include "launcher/clusters/cluster.h"
#include "launcher/job/job.h"
#include "launcher/job/prober.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/specs/job_specs.h"
#include "net/control/control_channel.h"
#include "net/loop/core_runner.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

struct JobRunnerOptions {
  std::string job;  // Its name.
  std::vector<ProcessPlan> processes;
  std::vector<JobGroup> groups;
  JobTiming timing;
  std::string nonce;
  bool foreign_router = false;  // It cannot be told which workers to use.
  bool open_workers = false;    // Its router cannot show a key to workers.
  // Of routers. They are opened one after the other, because they may share one port, which the
  // first one chooses.
  std::vector<Door> doors;
  // Of the Batch API's process, if there is one: routers reach it there whether it runs or not.
  std::optional<Door> batch_door;
  RootKey root_key;
  uint64_t launcher = 0;  // Of this run's launchers, which one this is.
  // What an earlier launcher of the run left; the doors then have their ports.
  std::optional<JobRecord> record;
  net::WeightSource weights;         // Of a job of mode rollout, at its start.
  std::optional<ProcessPlan> store;  // As JobSetting has it.
  std::string control_key;  // Opens the control routes of its routers; empty: there are none.
  bool https = false;       // The routers' doors.
  JobSpecs specs;
};

class JobRunner final : public net::ControlServer::Handler, Cluster::Handler {
 public:
  // The launcher's other parts. None of its calls may come back to the runner.
  class Observer {
   public:
    // Clients can connect. `batch_port`: of the Batch API's process; 0: there is none.
    virtual void on_doors_open(uint16_t port, uint16_t batch_port) = 0;
    virtual void on_door_failed(const std::string& reason) = 0;
    // The core has taken the event; its effects come next.
    virtual void on_step(const Event& event, const std::vector<Effect>& effects) = 0;
    virtual void on_ready() = 0;
    virtual void on_adopted(const ReportAdopted& /*adopted*/) {}
    virtual void on_finish(const Finish& finish) = 0;

   protected:
    ~Observer() = default;
  };

  // All but the options must outlive it.
  JobRunner(net::Loop& loop, Cluster& cluster, JobRunnerOptions options, Observer& observer);
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;
  ~JobRunner();

  // The control plane's handler is this object.
  void start(std::unique_ptr<net::ControlServer> control);
  void submit(Event event) { runner_.submit(std::move(event)); }

  // A message that is not of the Job core.
  void tell(const std::string& peer, const net::Message& message) { control_->send(peer, message); }

  // Whoever has it may read the logs and order sizes.
  std::string owner_key() const { return options_.root_key.derive("owner"); }
  // The launcher shows it to routers; no client has it.
  std::string probe_key() const { return options_.root_key.derive("probes"); }
  // Calls `done` with a piece of the process's log, now or in a later turn. kNotFound: there is no
  // such process or log. kOverloaded: too many ask.
  using LogReader = std::function<void(Result<LogAnswered>)>;
  void read_log(const std::string& process, uint64_t from, LogReader done);

  const Job& job() const { return job_; }
  // Processes that start from now on get these. The Job must hear GroupsChanged, too.
  void set_specs(JobSpecs specs);
  // The API key of a worker's HTTP port; empty: it needs none.
  std::string worker_key(const std::string& name) const;
  // Where the launcher reaches a process, and the key that it shows there. Requires: the process is
  // one of the job's.
  net::HttpAddress address_of(const std::string& name) const;
  std::string shown_key(const std::string& name) const;

 private:
  using Runner = net::CoreRunner<JobRunner, Job, Event, Effect>;
  friend Runner;

  void on_message(const std::string& peer, net::Message message) override {
    submit(MessageArrived{peer, std::move(message)});
  }
  void on_cluster_event(const ClusterEvent& event) override {
    std::visit([this](const auto& body) { take(body); }, event);
  }
  void take(const DoorOpened& event);
  void take(const DoorFailed& event);
  void take(const NodeJoined& event);
  void take(const NodeLost& event);
  void take(const LogAnswered& event);
  template <class JobEvent>
  void take(const JobEvent& event) {
    submit(event);
  }
  void open_next_door();
  void doors_are_open();

  void stepped(const Event& event, const std::vector<Effect>& effects) {
    observer_.on_step(event, effects);
  }
  void carried_out(const Event& /*event*/) {}
  void carry_out(const Spawn& effect);
  void carry_out(const SendSignal& effect) {
    cluster_.signal(effect.node, effect.incarnation, effect.signal);
  }
  void carry_out(const LookAt& effect) { cluster_.look_at(effect.node, effect.incarnation); }
  void carry_out(Send& effect);
  void carry_out(const Probe& effect) { prober_.start(effect); }
  void carry_out(const ReportStarved& /*effect*/) {}  // Its line in the log is all.
  void carry_out(const ReportReady& /*effect*/) { observer_.on_ready(); }
  void carry_out(const ReportAdopted& effect) { observer_.on_adopted(effect); }
  void carry_out(const CloseDoors& effect);
  void carry_out(const Finish& effect) { observer_.on_finish(effect); }

  std::optional<uint64_t> kv_received_by(const std::string& name) const;
  // Each start of a process has keys of its own, which every launcher of the run can compute. An
  // engine id would not do: it changes when the process changes its role.
  net::CurveKeys control_keys(Incarnation incarnation) const {
    return net::curve_keys_of(
        options_.root_key.derive("control", std::to_string(incarnation.value)));
  }
  std::string router_key() const;
  void add_batch_keys(net::ProcessSpec& spec) const;
  uint64_t ports_from(Incarnation incarnation) const;
  // `order`: of the first part.
  void spawn_other_parts(const Spawn& effect, const std::vector<Node>& nodes, SpawnOrder order);

  net::Loop& loop_;
  JobRunnerOptions options_;
  uint32_t ports_each_;  // engine_ports() of the specs.
  Observer& observer_;
  Cluster& cluster_;
  std::vector<Node> nodes_;  // Of the cluster; empty: to be asked for. A job may have thousands.
  const kvtransfer::LinkAuthority link_authority_;
  Job job_;
  std::unique_ptr<net::ControlServer> control_;
  Prober prober_;
  std::set<std::string> doors_open_;
  bool doors_told_ = false;
  // The doors' node, which joined without some of them: the job hears of it once they are open.
  std::optional<NodeJoined> joined_;
  Instant doors_due_ = kNever;
  net::TimerId doors_timer_;
  uint64_t log_tickets_ = 0;
  std::map<uint64_t, LogReader> log_readers_;  // By ticket.
  Runner runner_;
};

// "0.0.0.0" is an address to listen on, not to connect to.
std::string reachable(const std::string& host);

}  // namespace pdjob::launcher
