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

class LocalCluster final : public Cluster {
 public:
  struct Options {
    std::string program = "/proc/self/exe";
    LogFolder& logs;  // Must outlive the cluster.
  };
  LocalCluster(net::EventLoop& loop, Handler& handler, Options options);
  ~LocalCluster() override;  // Kills and reaps the remaining processes.

  std::vector<Node> nodes() const override;
  Result<uint16_t> listen(const std::string& name, const std::string& node, const std::string& host,
                          uint16_t port, net::PortUse use) override;
  bool listening(const std::string& name) const override { return listeners_.contains(name); }
  void close_listener(const std::string& name) override { listeners_.erase(name); }
  Result<int64_t> spawn(const SpawnOrder& order) override;
  void signal(Incarnation incarnation, Signal signal) override;

  // Describes this machine, before an event loop exists.
  static Node this_node();

 private:
  struct Listener {
    net::Fd socket;
    std::string host;
    uint16_t port = 0;
  };

  net::EventLoop& loop_;
  Handler& handler_;
  const Options options_;
  std::map<std::string, Listener> listeners_;
  std::map<Incarnation, std::unique_ptr<net::ChildProcess>> children_;
};

}  // namespace pdjob::launcher
