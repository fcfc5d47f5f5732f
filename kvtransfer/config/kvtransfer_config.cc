#include "kvtransfer/config/kvtransfer_config.h"

#include "common/limits.h"

namespace pdjob::kvtransfer {
namespace {

void read_tcp(ConfigReader& in, TcpConfig& config) {
  in.field("encrypt", config.encrypt,
           {{"auto", Encrypt::kAuto}, {"true", Encrypt::kAlways}, {"false", Encrypt::kNever}},
           {.doc = "Which links run under TLS 1.3, with a key made of the job's token. auto: those "
                   "between machines, which is to say between different addresses. What NCCL "
                   "itself moves is not encrypted."});
  in.field(
      "streams", config.streams,
      {.doc = "Most connections between two workers, of transport tcp only; each transfer goes "
              "by the least busy one. More help where a network limits single flows, not "
              "within one machine."},
      {.min = 1, .max = limits::kLinkStreamsMax});
}

void read_nccl(ConfigReader& in, NcclConfig& config) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  in.field("library", config.library,
           {.doc = "NCCL, at least 2.28.9: a path, or a name that the dynamic linker finds."});
  in.moved("cuda_library", "gpu.cuda_library");
  in.moved("device", "gpu.device");
  in.field("ctas_max", config.ctas_max,
           {.doc = "Multiprocessors that one link may take from the GPU while rows move."},
           {.min = 1, .max = 32});
  in.field("links_max", config.links_max,
           {.doc = "Communicators of one worker; beyond, the one that rests longest is closed."},
           {.min = 1, .max = 256});
  in.field("init_timeout", config.init_timeout,
           {.doc = "For both ends of a link to join their communicator."},
           {.min = milliseconds(100), .max = hours(1)});
  in.field("slab_timeout", config.slab_timeout,
           {.doc = "For one slab of rows to move; then the link is aborted."},
           {.min = milliseconds(100), .max = hours(1)});
  in.field(
      "abort_timeout", config.abort_timeout,
      {.doc = "For NCCL to return from an abort, and the GPU to come to rest after it; then the "
              "worker ends, to be started again."},
      {.min = milliseconds(100), .max = hours(1)});
}

}  // namespace

const char* to_string(TransportKind transport) {
  static constexpr const char* kNames[] = {"auto", "shm", "tcp", "nccl", "cuda_ipc"};
  return kNames[static_cast<size_t>(transport)];
}

void read(ConfigReader& in, KvTransferConfig& config) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  in.field(
      "transport", config.transport,
      {{"auto", TransportKind::kAuto},
       {"shm", TransportKind::kShm},
       {"tcp", TransportKind::kTcp},
       {"nccl", TransportKind::kNccl},
       {"cuda_ipc", TransportKind::kCudaIpc}},
      {.doc = "How KV rows move: auto takes cuda_ipc between GPUs of one machine, else shm on the "
              "same machine, and tcp else; nccl goes from GPU to GPU."});
  in.field("listen_host", config.listen_host,
           {.doc = "Numeric address on which a worker's KV endpoint listens; its peers are told "
                   "the same. Default: the address of its node; 127.0.0.1 for a worker by hand."});
  in.field("listen_port", config.listen_port,
           {.doc = "Port of the KV endpoint; 0 takes any free one."});
  in.field("lease", config.lease,
           {.doc = "How long a prefill worker keeps the KV of a finished prompt for a decode "
                   "worker that does not "
                   "fetch it, or has stopped answering."},
           {.min = milliseconds(100), .max = hours(1)});
  in.field(
      "connect_timeout", config.connect_timeout,
      {.doc =
           "For a link to open; a link whose peer is silent, and a transfer whose rows stop, for "
           "twice as long is given up."},
      {.min = milliseconds(100), .max = hours(1)});
  in.section("tcp", {.doc = "For transports tcp and nccl, whose links are TCP connections."},
             [&](ConfigReader& section) { read_tcp(section, config.tcp); });
  in.section("nccl", {.doc = "For transport nccl."},
             [&](ConfigReader& section) { read_nccl(section, config.nccl); });
}

}  // namespace pdjob::kvtransfer
