#include "kvtransfer/transport.h"

#include "common/check.h"
#include "kvtransfer/nccl_transport.h"
#include "kvtransfer/shm_transport.h"
#include "kvtransfer/tcp_transport.h"

namespace pdjob::kvtransfer {

std::unique_ptr<Transport> open_transport(TransportKind kind, LinkStream& stream,
                                          TransportSide side, NcclLinks* nccl) {
  switch (kind) {
    case TransportKind::kShm:
      return std::make_unique<ShmTransport>(stream);
    case TransportKind::kTcp:
      return std::make_unique<TcpTransport>(stream);
    case TransportKind::kNccl:
      PDJOB_CHECK(nccl != nullptr);
      return std::make_unique<NcclTransport>(
          stream, *nccl,
          side == TransportSide::kReceiver ? NcclLink::Side::kReceiver : NcclLink::Side::kSender);
    case TransportKind::kAuto:
      break;
  }
  PDJOB_CHECK(false, static_cast<int>(kind));
}

}  // namespace pdjob::kvtransfer
