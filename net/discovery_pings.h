// DiscoveryPings: tells a router that listens for them who is there, in the words of vLLM's
// P2pNccl workers (ZeroMQ DEALER, one frame, a msgpack map of type, http_address and zmq_address).
// The router forgets who is silent for five seconds. Loop-bound.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "net/message.h"

namespace pdjob::net {

class DiscoveryPings {
 public:
  explicit DiscoveryPings(uint16_t port);  // Of this machine.
  ~DiscoveryPings();
  DiscoveryPings(const DiscoveryPings&) = delete;
  DiscoveryPings& operator=(const DiscoveryPings&) = delete;

  // Never blocks. Workers that are no more in the list are forgotten here, too.
  void send(std::span<const WorkerEntry> workers);

 private:
  void* open_socket(const std::string& identity);

  const std::string endpoint_;
  void* const context_;
  std::map<std::string, void*> sockets_;  // By identity, which must be of one worker alone.
};

// The frame. Pure.
std::string discovery_ping(const WorkerEntry& worker);

}  // namespace pdjob::net
