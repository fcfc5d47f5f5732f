// Cluster: the machines that a job runs on. A node's listening sockets are opened before the
// processes that use them start. So ports are known early, and waiting connections survive a
// restart. The Cluster knows nothing about the job: the Job core decides which process to start,
// and when. Events arrive through the Handler, never inside a call. Loop-bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/job/job.h"
#include "launcher/plan/node.h"
#include "net/control/process_spec.h"
#include "net/loop/child_process.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

struct SpawnOrder {
  std::string node;
  Incarnation incarnation;
  net::ProcessSpec spec;  // The listener of spec.name sets spec.port and spec.listen_fd.
};

class Cluster {
 public:
  class Handler {
   public:
    // Called once for each spawned process.
    virtual void on_exited(Incarnation incarnation, const net::ChildExit& exit) = 0;

   protected:
    ~Handler() = default;
  };
  virtual ~Cluster() = default;

  virtual std::vector<Node> nodes() const = 0;

  // Opens the listening socket of the process `name` and returns its port. Replaces a socket that
  // is already open.
  virtual Result<uint16_t> listen(const std::string& name, const std::string& node,
                                  const std::string& host, uint16_t port, net::PortUse use) = 0;
  virtual bool listening(const std::string& name) const = 0;
  virtual void close_listener(const std::string& name) = 0;

  // Returns the process id on its node.
  virtual Result<int64_t> spawn(const SpawnOrder& order) = 0;
  virtual void signal(Incarnation incarnation, Signal signal) = 0;
};

}  // namespace pdjob::launcher
