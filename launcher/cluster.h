// Cluster: the machines a job runs on. Listening sockets are opened on a node before the process
// that will serve them exists, so that its port is known and waiting connections survive its
// restart. It knows no job: which process to start, and when, is the Job core's. Facts come back
// through the Handler, never inside a call. Loop-bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/job.h"
#include "net/child_process.h"
#include "net/process_spec.h"
#include "net/socket.h"

namespace pdjob::launcher {

struct Node {
  std::string name;
  std::string host;  // Where its processes listen.
  uint32_t cores = 0;
  uint64_t memory_bytes = 0;
  std::vector<std::string> gpus;  // As CUDA_VISIBLE_DEVICES names them.
};

struct SpawnOrder {
  std::string node;
  Incarnation incarnation;
  net::ProcessSpec
      spec;  // spec.port and spec.listen_fd are filled in from the listener of spec.name.
};

class Cluster {
 public:
  class Handler {
   public:
    // Comes once for each spawned process.
    virtual void on_exited(Incarnation incarnation, const net::ChildExit& exit) = 0;

   protected:
    ~Handler() = default;
  };
  virtual ~Cluster() = default;

  virtual std::vector<Node> nodes() const = 0;

  // Opens the listening socket of the process called `name`; the port it got. Replaces one that is
  // open.
  virtual Result<uint16_t> listen(const std::string& name, const std::string& node,
                                  const std::string& host, uint16_t port, net::PortUse use) = 0;
  virtual bool listening(const std::string& name) const = 0;
  virtual void close_listener(const std::string& name) = 0;

  // The process id on its node.
  virtual Result<int64_t> spawn(const SpawnOrder& order) = 0;
  virtual void signal(Incarnation incarnation, Signal signal) = 0;
};

}  // namespace pdjob::launcher
