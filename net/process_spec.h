// What the launcher hands to a process it starts: one JSON document on an inherited file descriptor
// (`--spec-fd N`), because it holds secrets. A process started by hand gets the same struct from
// its flags. Value.
#pragma once

#include <string>

#include "common/result.h"
#include "net/control_channel.h"
#include "net/message.h"

namespace pdjob::net {

struct ProcessSpec {
  std::string job;   // Name of the job.
  std::string name;  // "prefill-0", "router-0"
  Role role = Role::kBoth;
  std::string engine_id;  // New with every start.
  std::string model;      // Served name of the one of the job's models that it is for; a router is
                          // for all.
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  int listen_fd = -1;      // Inherited, listening HTTP socket; -1: bind host and port.
  ControlAddress control;  // Empty: stand-alone.
  std::string gpu;         // The only one that it sees, so CUDA's number 0; empty: all.
  std::string key;         // Of a worker: its HTTP port wants it; empty: nothing. Secret.
  std::string router_key;  // What a router of another make shows to all workers; empty: none does.
                           // Secret.
  std::string probe_key;   // Of a router: what the launcher's probes show; empty: none. Secret.
  std::string link_keys;   // Of a worker: its identity on KV links (kvtransfer/link_keys.h); empty:
                           // stand-alone. Secret.
  std::string config_yaml;  // The job's whole configuration text; roles read their own sections.
  std::string config_name;  // What errors call it.
};

std::string encode_spec(const ProcessSpec& spec);
Result<ProcessSpec> decode_spec(const std::string& json);

}  // namespace pdjob::net
