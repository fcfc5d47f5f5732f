// How KV moves between workers. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config_reader.h"
#include "common/time.h"

namespace pdjob::kvtransfer {

enum class TransportKind { kAuto, kShm, kTcp };

struct KvTransferConfig {
  TransportKind transport = TransportKind::kAuto;  // auto: shm on the same machine, tcp else.
  std::string listen_host = "127.0.0.1";           // Also the address told to peers.
  uint16_t listen_port = 0;                        // 0: any free port.
  Duration lease = std::chrono::seconds(
      60);  // A prefill worker holds the KV of a finished prompt this long for its fetch.
  Duration connect_timeout = std::chrono::seconds(5);
};

// Declares the keys of `kvtransfer:`.
void read(ConfigReader& in, KvTransferConfig& config);

}  // namespace pdjob::kvtransfer
