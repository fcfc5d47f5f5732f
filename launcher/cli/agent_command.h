// `pdjob agent`: reads its flags, its key and its name, and runs an agent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

struct AgentFlags {
  std::vector<std::string> join;  // "HOST:PORT"
  std::string key_file;
  int key_fd = -1;           // In place of the file; the agent ends when its other end is closed.
  int lock_fd = -1;          // Of a launcher's own agent (AgentOptions::lock).
  std::string new_key_file;  // Only makes this file.
  std::string name;          // Empty: the machine's.
  std::string host;
  std::string log_dir;
  std::vector<std::string> labels;  // "key=value"
  uint32_t cores = 0;               // At most; 0: all that it may use.
  uint64_t memory_bytes = 0;        // The same.
  bool granted = false;             // By Ray (AgentOptions::granted).
};

// Returns the exit code (common/exit_code.h).
int run_agent_by_flags(const AgentFlags& flags, const Places& places);
// The agent of a job's share of a pool's node (launcher/pool): the pool's agent starts it.
int run_pool_agent_by_spec(int spec_fd, const Places& places);

}  // namespace pdjob::launcher
