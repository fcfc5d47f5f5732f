// All messages between a launcher and the agent of a node: one struct each, one variant. Orders go
// to the agent; what came of them goes to the launcher. Bytes: agent_wire.h. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/clusters/cluster.h"
#include "launcher/placement/demand.h"
#include "launcher/placement/topology.h"

namespace pdjob::launcher {

inline constexpr size_t kNodeFactsMax = 256;  // GPUs of a node; its labels.
// Of a node; also its doors.
inline constexpr size_t kNodeProcessesMax = 2 * kProcessesMax;
// Orders for an agent, or outcomes for a launcher, that wait until the other end is there again.
inline constexpr size_t kAgentHeldMax = 2 * kNodeProcessesMax;
inline constexpr size_t kAgentTextBytesMax = 1024;

// --- to the launcher

// "I am here." Sent every second until a launcher answers.
struct AgentHello {
  std::string name;       // Of the node; unique in its cluster.
  uint64_t instance = 0;  // Of this start of the agent.
  uint64_t session = 0;   // That it still holds; 0: none.
  uint64_t sign = 0;      // The last SignAsked of that session; 0: none.
  std::string build;      // The version of pdjob.
  uint32_t cores = 0;
  std::string cores_bound;  // Why no more; empty: the machine has no more.
  uint64_t memory_bytes = 0;
  std::string memory_bound;  // The same.
  std::vector<std::string> gpus;
  GpuParts gpu_parts;  // As in Node.
  std::vector<std::pair<std::string, std::string>> labels;
  NodeTopology topology;
};
// Answer to Welcome: nothing of an earlier session runs here, except what an earlier launcher of
// the same owner left.
struct NodeReady {
  std::string host;  // Its processes listen here.
  std::vector<RunningProcess> running;
  std::vector<std::pair<std::string, uint16_t>> doors;  // Names and ports.
};
struct NodeLeaving {
  std::string why;
};
// --- to the agent

// Begins a session. The agent ends all that is left of an earlier one, unless the owner is the same
// and the launcher's number is higher: then the new launcher adopts it.
struct Welcome {
  std::string job;
  // Which address of the node its processes listen on (node_address.h); empty: the agent's choice.
  std::string host;
  uint64_t lease_ms = 0;           // Either end gives the other up after so much silence.
  uint64_t orphan_timeout_ms = 0;  // How long processes outlive a launcher that is lost.
  std::string owner;               // One run of a job; secret enough that nobody guesses it.
  uint64_t launcher = 0;  // Of the run's launchers, which one this is. It only grows. 0: it only
                          // looks at the nodes (`pdjob plan`).
};
struct Refused {
  std::string reason;
};
// The session is over: end everything. Or else keep the processes for so long, for the next
// launcher of the same owner, unless another job wants the node.
struct Goodbye {
  uint64_t keep_ms = 0;
};
struct OpenDoor {
  std::string name;
  std::string host;
  uint16_t port = 0;
  bool shared = false;
};
struct CloseDoor {
  std::string name;
};
struct StartProcess {
  uint64_t incarnation = 0;
  std::string spec;  // net::encode_spec(). Secret.
};
struct SignalProcess {
  uint64_t incarnation = 0;
  Signal signal = Signal::kTerminate;
};
// "Are you there?" Answered by a Hello that has this number.
struct SignAsked {
  uint64_t sign = 0;
};
struct LookAtProcess {  // Answered by ProcessSeen.
  uint64_t incarnation = 0;
};
struct ReadLog {  // Answered by LogAnswered.
  uint64_t ticket = 0;
  std::string process;
  uint64_t from = kLogEnd;
};

// --- both ways

// "I am still here." It also makes known that an earlier message was lost.
// Those of an agent have the number of its last other message: one that is lost is no gap.
struct Beat {
  uint64_t received = 0;  // The last number of this session that came from the other end.
};

using AgentMessage = std::variant<AgentHello, NodeReady, NodeLeaving, LogAnswered, Welcome, Refused,
                                  Goodbye, OpenDoor, CloseDoor, StartProcess, SignalProcess,
                                  ReadLog, Beat, DoorOpened, DoorFailed, Spawned, SpawnFailed,
                                  ProcessExited, LookAtProcess, ProcessSeen, SignAsked>;

// The messages of a session are numbered from 1 on, each way. A gap ends the session. Hello and
// Refused belong to no session and have number 0; so does SignAsked, which may be lost.
struct AgentFrame {
  uint64_t session = 0;
  uint64_t number = 0;
  AgentMessage message;
};

}  // namespace pdjob::launcher
