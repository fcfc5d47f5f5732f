// The data that a process gets from its launcher: one message on an inherited file descriptor
// (`--spec-fd N`), because it holds secrets. It says who the process is; `work` says what it does.
// A process started by hand builds the same struct from its flags. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/limits.h"
#include "common/result.h"
#include "net/control/control_channel.h"
#include "net/control/message.h"

namespace pdjob::net {

struct ProcessSpec {
  std::string job;   // Name of the job.
  std::string name;  // "prefill-0", "router-0"
  Role role = Role::kBoth;
  std::string engine_id;  // New with every start.
  // Served name of the worker's model; a router serves all models.
  std::string model;
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  int listen_fd = -1;  // Inherited, listening HTTP socket; -1: bind host and port.
  // Inherited memory where the engines of one machine lend each other threads; -1: none.
  int threads_fd = -1;
  ControlAddress control;  // Empty: stand-alone.
  // The only GPUs it sees, as CUDA's numbers from 0 on: "2,GPU-8a1"; empty: all.
  std::string gpus;
  uint32_t gpu_percent = 100;  // Of each of them.
  // Of a worker with GPUs: what is nearest to them. Empty: nothing is known, or asked for.
  std::string cpus;         // The only ones that it uses, as in common/config/number_list.h.
  std::string memory_node;  // Number of the NUMA node from which its memory comes first.
  std::string nics;         // "mlx5_0,mlx5_1"
  std::string key;          // API key of a worker's HTTP port; empty: none. Secret.
  // Key that a foreign router shows to all workers; empty: none. Secret.
  std::string router_key;
  std::string probe_key;  // Key of the launcher's probes, for a router; empty: none. Secret.
  // Identity of a worker on KV links (kvtransfer/link/link_keys.h); empty: stand-alone. Secret.
  std::string link_keys;
  // With a Batch API. For a router: where its process listens, and the key of that port (Secret).
  std::string batch_address;  // "host:port"
  std::string batch_key;
  // For that process: where routers listen.
  std::string front_address;
  // For both: who shows it to a router may name the tenant whose row it sends. Secret.
  std::string rows_key;
  WeightSource weights;        // Of a worker in a rollout job.
  bool begins_closed = false;  // A router of one: it waits for AdmissionAsked.
  std::string control_key;     // Opens the control routes of a router. Secret.
  // Of a worker with an engine of another make: from which of its ports on it takes free ones. Each
  // start of a worker has others, because peers remember the ports of a dead engine.
  uint64_t ports_from = 0;
  // Of an engine over several nodes: which of them this is. The first one, 0, serves, and the
  // others are told where it is.
  uint32_t part = 0;
  std::string head_host;
  // Where the master of its job's stores is, if they have one.
  std::string store_host;
  // Of a pool's process, which is of no role: the command of pdjob that reads this spec.
  std::string command;
  std::string work;  // launcher/specs/job_specs.h; of a pool's process launcher/pool/pool_specs.h
};

inline constexpr size_t kWorkBytesMax = 4 * limits::kConfigBytesMax;
inline constexpr size_t kSpecBytesMax = 2 * kWorkBytesMax;  // Encoded.

// Requires: `work` has at most kWorkBytesMax bytes.
std::string encode_spec(const ProcessSpec& spec);
// kInvalidArgument: these are no such bytes.
Result<ProcessSpec> decode_spec(const std::string& bytes);
// Reads the descriptor that a launcher gave this process, and closes it. kInvalidArgument: there is
// no spec.
Result<ProcessSpec> read_spec(int fd);

}  // namespace pdjob::net
