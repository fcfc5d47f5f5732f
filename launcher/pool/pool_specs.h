// What the keeper tells the processes that it starts on the nodes of a pool, as the work of their
// ProcessSpec (net/control/process_spec.h): the agent of a share, and a job's launcher. Values.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/result.h"
#include "launcher/placement/demand.h"

namespace pdjob::launcher {

inline constexpr const char* kShareCommand = "pool-agent";
inline constexpr const char* kLaunchCommand = "pool-launcher";
inline constexpr const char* kPoolCluster = "pool";  // The one cluster of a job of a pool.

struct ShareSpec {
  std::string job;   // Its name.
  std::string name;  // Of the node that the job sees: its processes run with this share.
  std::string join;  // HOST:PORT of the job's launcher.
  std::string key;   // Secret.
  uint32_t cores = 0;
  uint64_t memory_bytes = 0;
  GpuParts gpu_parts;
  std::map<std::string, std::string> labels;
};

struct LaunchSpec {
  std::string job;     // Its name.
  std::string text;    // The job file.
  std::string source;  // The path of that, also where it is on another machine (Places::original).
  std::string listen;  // HOST:PORT where the agents of its shares join.
  std::string key;     // Secret.
  uint32_t nodes = 1;  // Its shares.
};

std::string encode(const ShareSpec& spec);
std::string encode(const LaunchSpec& spec);
// kInvalidArgument: these are no such bytes.
Result<ShareSpec> decode_share_spec(const std::string& bytes);
Result<LaunchSpec> decode_launch_spec(const std::string& bytes);

}  // namespace pdjob::launcher
