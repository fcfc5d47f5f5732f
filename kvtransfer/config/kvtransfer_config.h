// KvTransferConfig: how KV moves between workers. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_reader.h"
#include "common/time.h"
#include "gpu/gpu_config.h"

namespace pdjob::kvtransfer {

// The wire (HELLO) carries these numbers.
enum class TransportKind { kAuto, kShm, kTcp, kNccl, kCudaIpc };
const char* to_string(TransportKind transport);

struct NcclConfig {
  std::string library = "libnccl.so.2";
  GpuConfig cuda;           // The job's section `gpu`, also for cuda_ipc. It has no keys here.
  uint32_t ctas_max = 4;    // Multiprocessors that one communicator may use.
  uint32_t links_max = 16;  // Communicators. Beyond that, the one idle longest is closed.
  // NCCL has no deadlines of its own.
  Duration init_timeout = std::chrono::seconds(20);
  Duration slab_timeout = std::chrono::seconds(10);
  Duration abort_timeout = std::chrono::seconds(10);
};

// Which links over TCP run under TLS, also those of nccl.
enum class Encrypt {
  kAuto,  // Those whose ends have different addresses: between machines.
  kNever,
  kAlways,
};

struct TcpConfig {
  Encrypt encrypt = Encrypt::kAuto;
  uint32_t streams = 1;  // tcp links per pair of workers.
};

struct KvTransferConfig {
  // auto, on the same machine: cuda_ipc for KV in GPU memory, shm for KV in host memory. Otherwise
  // tcp.
  TransportKind transport = TransportKind::kAuto;
  std::string listen_host;   // Also the address told to peers. Empty: 127.0.0.1.
  uint16_t listen_port = 0;  // 0: any free port.
  Duration lease = std::chrono::seconds(
      60);  // How long a prefill worker keeps the KV of a finished prompt for its fetch.
  Duration connect_timeout = std::chrono::seconds(5);
  TcpConfig tcp;
  NcclConfig nccl;
};

// Declares the keys of `kvtransfer:`.
void read(ConfigReader& in, KvTransferConfig& config);

}  // namespace pdjob::kvtransfer
