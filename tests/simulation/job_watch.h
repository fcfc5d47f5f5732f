// JobWatch: looks at a Job core from outside, after each of its steps. Only processes that a probe
// went through get ready. A process is started only when it does not run, and never after it was
// retired, and only on a node that is there, accepts it and has what it takes, which no other
// process has then. A process leaves for good only if its group keeps what it should have. A
// process waits only while no node has room for it. The processes of a lost node may outlive its
// loss, but not for long. It follows which processes there should be.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job_runner.h"
#include "launcher/simulator/sim_cluster.h"
#include "tests/simulation/invariants.h"

namespace pdjob::simulation {

// The lines of a step for the trace. Nothing for heartbeats and loads.
std::vector<std::string> job_words(const launcher::Event& event,
                                   const std::vector<launcher::Effect>& effects);

class JobWatch {
 public:
  struct Counts {
    uint64_t starts = 0, probes = 0, retired = 0;
  };

  JobWatch(Invariants& invariants, const SimMachines& machines)
      : invariants_(invariants), machines_(machines) {}

  // How long the processes of a lost node may run on, from the time that this says of the node, if
  // that is later than its loss.
  void let_outlive(Duration outlives, std::function<Instant(const std::string& node)> from) {
    outlives_ = outlives;
    outlives_from_ = std::move(from);
  }

  // The nodes that the job begins with.
  void begin(const std::vector<launcher::Node>& nodes);
  void planned(const std::string& name) { planned_.insert(name); }
  // Only launchers die, so no process is killed that should go on.
  void calm() { calm_ = true; }
  // The launcher has died, and another one goes on with this.
  void adopt(const launcher::JobRecord& record, Instant now);

  void after(const launcher::Job& job, const launcher::Event& event,
             const std::vector<launcher::Effect>& effects, Instant now);
  // Whether a probe may be under way.
  bool probes(Instant now) const {
    return !probes_.empty() || now - last_probe_ < std::chrono::seconds(1);
  }
  bool proved(const std::string& engine_id) const { return proved_.contains(engine_id); }
  // Once faults have ended and the job has had time: everything is as it was asked for.
  void expect_all_well(const launcher::Job& job);
  bool well(const launcher::Job& job) const;
  // Those that may still run on their lost nodes do not.
  void look(Instant now);
  const Counts& counts() const { return counts_; }

 private:
  void on(const launcher::Job& job, const launcher::Probe& probe);
  void on(const launcher::Job& job, const launcher::Spawn& spawn);
  void on(const launcher::Job& job, const launcher::SendSignal& signal);
  void follow(const launcher::Job& job);
  void check_spares(const launcher::Job& job);
  void retired(const std::string& name);
  void check_promises(const launcher::Job& job);
  void check_waits(const launcher::Job& job);
  void lose(const std::string& node, Instant now);
  void lose_absent(Instant now);
  bool given_up(launcher::Incarnation incarnation) const;
  void on_success(const launcher::ProbeSucceeded& event);

  Invariants& invariants_;
  const SimMachines& machines_;
  struct ProbePath {
    std::vector<std::string> engine_ids;  // Those that it goes through.
    bool moves_kv = false;                // From a prefill to a decode worker.
  };
  std::map<uint64_t, ProbePath> probes_;
  std::set<std::string> proved_;  // Engine ids.
  std::set<std::string> planned_;
  std::set<std::string> spawned_;  // Names that ever ran.
  std::set<std::string> retired_;  // The job forgets them once they have ended.
  std::map<std::string, net::Role> roles_;
  std::map<std::string, launcher::Node> nodes_;  // As the job was told.
  struct Placed {
    std::string node;
    bool wide = false;  // It has parts on other nodes.
    Instant given_up = kNever;
  };
  std::map<launcher::Incarnation, Placed> placed_;
  Duration outlives_{};
  std::function<Instant(const std::string& node)> outlives_from_;
  bool started_ = false;
  bool calm_ = false;
  Counts counts_;
  Instant last_probe_{};
};

}  // namespace pdjob::simulation
