// The keys of agents and their launcher. Both ends derive both key pairs from one secret text, the
// key of the cluster: whoever has it may join, and may run commands on the nodes. Value.
#pragma once

#include <string>

#include "common/result.h"
#include "net/zeromq/curve_channel.h"

namespace pdjob::launcher {

struct AgentKeys {
  net::CurveKeys launcher;
  net::CurveKeys agent;

  static AgentKeys of(const std::string& cluster_key);
};

// Makes a new key, in a file that only its owner can read. kInvalidArgument: the file exists.
Status make_key_file(const std::string& path);

// Reads the first line of what a program writes to this descriptor, a key. Blocks until it is
// there. The descriptor stays open.
Result<std::string> read_key_line(int fd);

}  // namespace pdjob::launcher
