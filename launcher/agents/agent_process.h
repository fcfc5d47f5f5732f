// `pdjob agent`: the shell of an agent. It joins a launcher, runs the processes that the launcher
// orders on a LocalCluster, and tells what comes of them. It tries for ever, and serves one
// launcher after the other. It runs commands for whoever has the key.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/placement/demand.h"
#include "net/http/http_address.h"

namespace pdjob::launcher {

struct AgentOptions {
  // Where launchers listen, at least one: it tries them in turn while none serves it.
  std::vector<net::HttpAddress> join;
  std::string key;   // Secret.
  std::string name;  // Of the node.
  std::string host;  // As in node_address.h; empty: the launcher's choice.
  std::string log_dir;
  std::string build;
  std::vector<std::pair<std::string, std::string>> labels;
  uint32_t cores = 0;         // That the node offers at most; 0: all that the agent may use.
  uint64_t memory_bytes = 0;  // The same.
  GpuParts gpu_parts = {};    // As in Node.
  // "granted by Ray": a scheduler says what the node may use, and knows better; empty: none does.
  std::string granted;
  int lifeline = -1;  // The agent ends when nobody holds its other end any more; -1: none.
  // The agent is a launcher's own, on its machine: it ends with its session, and holds this locked
  // file, to which it writes its pid; -1: it is not.
  int lock = -1;
};

// Runs until it is stopped. Returns the exit code (common/exit_code.h).
int run_agent(const AgentOptions& options);

}  // namespace pdjob::launcher
