// Where an endpoint listens. It travels inside kv_transfer_params. Value.
#pragma once

#include <cstdint>
#include <string>

namespace pdjob::kvtransfer {

struct EndpointAddress {
  // Id of this incarnation. A restarted worker has another one, and links never survive a restart.
  std::string engine_id;
  std::string host;
  uint16_t port = 0;  // tcp
  // "@name" (abstract socket) for shm; empty: not offered. Usable only on the same machine
  // (host_id).
  std::string unix_path;
  std::string host_id;   // Boot id and network namespace: equal means same machine.
  std::string gpu_path;  // Like unix_path, for cuda_ipc.
  friend bool operator==(const EndpointAddress&, const EndpointAddress&) = default;
};

}  // namespace pdjob::kvtransfer
