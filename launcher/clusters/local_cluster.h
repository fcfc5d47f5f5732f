// LocalCluster: this machine. Each process is this same binary, forked and executed. It gets its
// spec on an inherited memfd, and its output goes to its own log file. All processes die with the
// launcher. Loop-bound.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/clusters/cluster.h"
#include "launcher/clusters/log_folder.h"
#include "net/loop/child_process.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

// What the operator lets a job use of this machine, at most; 0: all.
struct OperatorBound {
  uint32_t cores = 0;
  std::string cores_by;  // Where the operator said so.
  uint64_t memory_bytes = 0;
  std::string memory_by;
};

class LocalCluster final : public Cluster {
 public:
  struct Options {
    std::string program = "/proc/self/exe";
    LogFolder& logs;  // Must outlive the cluster.
    Node node = this_node();
  };
  LocalCluster(net::EventLoop& loop, Options options);
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;
  ~LocalCluster() override;  // Kills and reaps the remaining processes.

  void report_to(Handler& handler) override { handler_ = &handler; }
  std::vector<Node> nodes() const override { return {options_.node}; }
  void open_door(const Door& door) override;
  void close_door(const std::string& name) override { doors_.erase(name); }
  void spawn(const SpawnOrder& order) override;
  void signal(const std::string& node, Incarnation incarnation, Signal signal) override;
  void look_at(const std::string& node, Incarnation incarnation) override;
  void read_log(const LogQuestion& question) override;

  // What it runs and holds now.
  std::vector<RunningProcess> running() const;
  std::vector<std::pair<std::string, uint16_t>> doors() const;

  static constexpr const char* kNodeName = "local";
  // Describes this machine as it is now, without a cluster.
  static Node this_node(const OperatorBound& bound = {});

 private:
  void tell(ClusterEvent event);
  Result<int64_t> start(const SpawnOrder& order);
  void bound_logs();

  net::EventLoop& loop_;
  const Options options_;
  net::Fd threads_;  // Where the workers' engines lend each other threads; invalid: nowhere.
  Handler* handler_ = nullptr;
  net::TimerId log_timer_{};
  std::map<std::string, net::Fd> doors_;
  std::map<Incarnation, std::unique_ptr<net::ChildProcess>> children_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For what waits in the loop.
};

}  // namespace pdjob::launcher
