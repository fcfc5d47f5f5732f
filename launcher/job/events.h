// The events and effects of the Job core. Values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/time.h"
#include "launcher/job/groups.h"
#include "launcher/job/process.h"
#include "launcher/placement/node.h"
#include "net/control/message.h"

namespace pdjob::launcher {

// --- events

struct Started {};
// What a node says of a process. The job ignores it unless the process runs on that node.
struct Spawned {
  Incarnation incarnation;
  int64_t pid = 0;
  std::string node;
};
struct SpawnFailed {
  Incarnation incarnation;
  std::string reason;
  std::string node;
};
struct ProcessExited {
  Incarnation incarnation;
  std::string how;       // "exit code 1", "signal 9 (Killed)"
  bool crashed = false;  // As net::ChildExit::crashed() says.
  std::string node;
};
// Answer to LookAt. None comes if the process has ended.
struct ProcessSeen {
  Incarnation incarnation;
  VitalSigns signs;
  std::string node;
};
// From a process, identified by its key.
struct MessageArrived {
  std::string peer;
  net::Message message;
};
struct ProbeSucceeded {
  uint64_t probe = 0;
  uint64_t kv_bytes = 0;
};
struct ProbeFailed {
  uint64_t probe = 0;
  std::string reason;
};
struct StopAsked {
  int exit_code = 0;
  // Workers and stores of a ready job stay as they are, for the next launcher of the run. A second
  // StopAsked ends them, too.
  bool keeps_warm = false;
};

// The process finishes what it has, and starts again on the node that is best for it then. If it is
// slow, its node is trusted less. Ignored unless it is a worker that serves.
struct ReplaceAsked {
  std::string name;
  bool slow = true;
};
// The job should have these from now on: the same groups, with other sizes, or with workers that do
// something else.
struct GroupsChanged {
  std::vector<JobGroup> groups;
};
// What runs there is slow: other nodes are preferred for a while.
struct NodeBlamed {
  std::string name;
};
// All workers are to serve with these weights. `prepared`: by engine id, the order that prepared
// them there; 0: the worker keeps its weights under another name. Other workers start again. No
// worker with other weights is a member from now on.
struct WeightsChosen {
  net::WeightSource weights;
  std::map<std::string, uint64_t> prepared;
};
// A process that runs on a node.
struct RunningProcess {
  Incarnation incarnation;
  int64_t pid = 0;
  friend bool operator==(const RunningProcess&, const RunningProcess&) = default;
};
// `running` and `doors` are what an earlier launcher of this job left there.
struct NodeJoined {
  Node node;
  std::vector<RunningProcess> running;
  std::map<std::string, uint16_t> doors;  // Their ports, by name (clusters/cluster.h).
};
// Everything on that node is gone. Its processes are placed on other nodes.
struct NodeLost {
  std::string name;
  std::string why;
};

using Event = std::variant<Started, Spawned, SpawnFailed, ProcessExited, MessageArrived,
                           ProbeSucceeded, ProbeFailed, StopAsked, TimePassed, NodeJoined, NodeLost,
                           ProcessSeen, WeightsChosen, ReplaceAsked, NodeBlamed, GroupsChanged>;

// It tells of a load, and asks for nothing.
bool is_heartbeat(const Event& event);

// --- effects, to be executed in order

struct Spawn {
  std::string name;
  net::Role role = net::Role::kBoth;
  std::string model;
  Incarnation incarnation;
  std::string engine_id;
  Place place;
  net::WeightSource weights = {};  // Of a worker.
  Demand demand = {};
};
struct SendSignal {
  Incarnation incarnation;
  Signal signal = Signal::kTerminate;
  std::string node;
};
// Is a silent process alive, or one that starts for too long?
struct LookAt {
  Incarnation incarnation;
  std::string node;
};
struct Send {
  std::string peer;
  net::Message message;
};
// One token through this router, pinned to these workers. `prefill` is empty if the model is not
// disaggregated. A router that cannot be pinned is probed alone: then `router` is empty, or both
// workers are.
struct Probe {
  uint64_t probe = 0;
  std::string model;
  std::string router;
  std::string prefill;
  std::string decode;
};
// It is starved from now on (job/starvation.h), or was so until now.
struct ReportStarved {
  std::string name;
  double share = 0;  // Of its time, in which it waited for a core.
  bool ended = false;
  Duration lasted{};  // If it has ended.
};
struct ReportReady {};
// All nodes of the earlier launcher have joined, or were given up.
struct ReportAdopted {
  uint64_t adopted = 0;
  uint64_t processes = 0;
};
// The job accepts no more requests: close the listening sockets held for restarts.
struct CloseDoors {};
struct Finish {
  int exit_code = 0;
  std::string reason;       // Empty after a clean stop.
  std::string culprit;      // The process whose log explains more; may be empty.
  bool keeps_warm = false;  // Workers run on, as it was asked.
};

using Effect = std::variant<Spawn, SendSignal, LookAt, Send, Probe, ReportStarved, ReportReady,
                            ReportAdopted, CloseDoors, Finish>;

struct JobTiming {
  Duration start_timeout = std::chrono::minutes(5);
  Duration stop_timeout = std::chrono::seconds(30);   // Of the job.
  Duration drain_timeout = std::chrono::minutes(10);  // Of a worker that leaves a job that goes on.
  // A prefill worker that leaves has this on top of drain_timeout: KV that is not fetched yet is
  // kept for so long.
  Duration lease{};
  Duration heartbeat_timeout = std::chrono::seconds(3);
  Duration hang_timeout = std::chrono::seconds(15);
  Duration progress_timeout = std::chrono::minutes(2);
  Duration probe_retry = std::chrono::milliseconds(100);
  // How long a new launcher waits for the nodes of an earlier one.
  Duration adopt_timeout = std::chrono::seconds(15);
  Duration membership_retry = std::chrono::milliseconds(500);  // Until a router confirms it.
  RestartConfig restart;
};

using Turn = pdjob::Turn<Effect>;

}  // namespace pdjob::launcher
