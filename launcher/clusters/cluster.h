// Cluster: the machines that a job runs on. It knows nothing about the job: the Job core decides
// which process to start, where and when. Every order returns at once; what came of it arrives as
// an event. Loop-bound.
//
// A door is a listening socket that the cluster holds for a process, whether it runs or not. So its
// port is known before it starts, and clients wait while it is replaced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/job/events.h"
#include "launcher/placement/node.h"
#include "net/control/process_spec.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

struct Door {
  std::string name;  // Of the process.
  std::string node;
  std::string host;
  uint16_t port = 0;  // 0: any free one.
  net::PortUse use = net::PortUse::kAlone;
};

struct DoorOpened {
  std::string name;
  uint16_t port = 0;
};
struct DoorFailed {
  std::string name;
  std::string reason;
};

// A piece of a process's log. Bytes from `from` on; kLogEnd: the last ones.
inline constexpr uint64_t kLogEnd = UINT64_MAX;
inline constexpr size_t kLogPieceBytesMax = size_t{64} * 1024;
struct LogQuestion {
  uint64_t ticket = 0;  // Of the asker; in the answer.
  std::string node;
  std::string process;
  uint64_t from = kLogEnd;
};
// The text begins at `from`, which is not what was asked if the log has been cut meanwhile. An
// empty text: there is no more yet.
struct LogAnswered {
  uint64_t ticket = 0;
  bool found = false;
  uint64_t from = 0;
  std::string text;
};

// Each spawn is answered by Spawned or SpawnFailed. ProcessExited follows Spawned, once. After
// NodeLost nothing more is told of that node's processes.
using ClusterEvent = std::variant<NodeJoined, NodeLost, DoorOpened, DoorFailed, Spawned,
                                  SpawnFailed, ProcessExited, ProcessSeen, LogAnswered>;

struct SpawnOrder {
  std::string node;
  Incarnation incarnation;
  // The cluster sets spec.listen_fd and spec.port: the door of spec.name or, without one, a socket
  // of the process alone, on any free port of spec.host.
  net::ProcessSpec spec;
};

class Cluster {
 public:
  class Handler {
   public:
    // Never called inside an order.
    virtual void on_cluster_event(const ClusterEvent& event) = 0;

   protected:
    ~Handler() = default;
  };
  virtual ~Cluster() = default;

  // The handler must outlive the cluster, or be replaced.
  virtual void report_to(Handler& handler) = 0;

  // The nodes that the job can use now.
  virtual std::vector<Node> nodes() const = 0;

  // Answered by DoorOpened or DoorFailed. Closes a door of the same name first, even if the new one
  // then fails.
  virtual void open_door(const Door& door) = 0;
  virtual void close_door(const std::string& name) = 0;

  virtual void spawn(const SpawnOrder& order) = 0;
  // Ignored if the process does not run on that node.
  virtual void signal(const std::string& node, Incarnation incarnation, Signal signal) = 0;
  // Answered by ProcessSeen, or by nothing if the process does not run on that node.
  virtual void look_at(const std::string& node, Incarnation incarnation) = 0;
  // Answered by LogAnswered.
  virtual void read_log(const LogQuestion& question) = 0;
  // The job has ended. What runs need not end with this cluster, but may stay for so long, for the
  // run's next launcher. No order and no event follows.
  virtual void keep_warm(Duration /*time*/) {}
  // Everybody has heard it.
  virtual bool left_warm() const { return true; }
};

}  // namespace pdjob::launcher
