// DiscoveryPings: tells a router which workers exist, in the format of vLLM's P2pNccl workers
// (ZeroMQ DEALER, one frame, a msgpack map of type, http_address and zmq_address). The router drops
// workers without a ping for five seconds. Loop-bound.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "net/message.h"

namespace pdjob::net {

class DiscoveryPings {
 public:
  explicit DiscoveryPings(uint16_t port);  // Port of a router on this machine.
  ~DiscoveryPings();
  DiscoveryPings(const DiscoveryPings&) = delete;
  DiscoveryPings& operator=(const DiscoveryPings&) = delete;

  // Never blocks. Also closes the sockets of workers that are not in the list.
  void send(std::span<const WorkerEntry> workers);

 private:
  void* open_socket(const std::string& identity);

  const std::string endpoint_;
  void* const context_;
  std::map<std::string, void*> sockets_;  // By identity; each worker needs its own.
};

// Returns the frame. Pure.
std::string discovery_ping(const WorkerEntry& worker);

}  // namespace pdjob::net
