// PlayedLauncher: the launcher of a job that scales, on virtual time: Job core, runner, control
// plane and autoscaler as they ship. Its doubles are the machines (sim_cluster.h): one node with
// room for all, on which a worker takes its time to start. Nothing fails.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/job_runner.h"
#include "launcher/job_scaling.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/simulator/sim_cluster.h"
#include "launcher/simulator/sim_control.h"
#include "launcher/simulator/sim_worker.h"

namespace pdjob::simulation {

// A job as its launcher has it.
struct LaunchedJob {
  launcher::JobConfig config;
  launcher::LaunchPlan plan;  // On one node.
  launcher::Node node;
  Duration start_time{};  // Of a worker, until it registers. None for a change of its role.
};

class PlayedLauncher final : launcher::JobRunner::Observer {
 public:
  // The rest of the world.
  struct World {
    SimLoop& loop;
    SimSockets& http;
    // Makes a process, which calls `end` when it ends by itself.
    std::function<std::unique_ptr<SimMember>(const net::ProcessSpec& spec,
                                             std::function<void()> end)>
        begin;
    // The process ends now; what it has done can be read for the last time.
    std::function<void(SimMember& member)> ends;
    // A line of the autoscaler's.
    std::function<void(const std::string& text)> say;
  };

  PlayedLauncher(const LaunchedJob& job, World world, uint64_t seed);
  ~PlayedLauncher();
  PlayedLauncher(const PlayedLauncher&) = delete;
  PlayedLauncher& operator=(const PlayedLauncher&) = delete;

  // As SimScene::join.
  std::unique_ptr<net::ControlClient> join(SimProcess& process,
                                           net::ControlClient::Handler& handler,
                                           const net::ProcessSpec& spec) {
    return control_.join(process, handler, spec);
  }
  // All workers that the job begins with serve.
  bool ready() const { return ready_; }
  // Why the job has failed; empty: it has not.
  const std::string& failure() const { return failure_; }

 private:
  using Order = SimCluster::Order;

  void begin(const Order& order);
  void gone(launcher::Incarnation who);
  void end(launcher::Incarnation who);

  void on_doors_open(uint16_t /*port*/, uint16_t /*batch_port*/) override {}
  void on_door_failed(const std::string& reason) override { failure_ = reason; }
  void on_step(const launcher::Event& /*event*/,
               const std::vector<launcher::Effect>& /*effects*/) override {}
  void on_ready() override { ready_ = true; }
  void on_finish(const launcher::Finish& finish) override { failure_ = finish.reason; }

  const World world_;
  const Duration start_time_;
  Random random_;
  const SimCuts no_cuts_;
  SimControl control_;
  SimProcess process_;
  SimMachines machines_;
  SimCluster cluster_;
  std::map<launcher::Incarnation, std::unique_ptr<SimMember>> members_;
  std::map<std::string, net::Role> roles_;  // That each worker had when it began last, by name.
  launcher::JobRunner runner_;
  launcher::JobScaling scaling_;
  bool ready_ = false;
  std::string failure_;
};

}  // namespace pdjob::simulation
