#include "kvtransfer/kvtransfer_config.h"

namespace pdjob::kvtransfer {

void read(ConfigReader& in, KvTransferConfig& config) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  in.field(
      "transport", config.transport,
      {{"auto", TransportKind::kAuto}, {"shm", TransportKind::kShm}, {"tcp", TransportKind::kTcp}},
      {.doc = "How KV rows move: auto takes shm on the same machine and tcp else."});
  in.field("listen_host", config.listen_host,
           {.doc = "Numeric address on which a worker's KV endpoint listens; its peers are told "
                   "the same."});
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
}

}  // namespace pdjob::kvtransfer
