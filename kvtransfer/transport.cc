#include "kvtransfer/transport.h"

#include "common/check.h"
#include "kvtransfer/shm_transport.h"
#include "kvtransfer/tcp_transport.h"

namespace pdjob::kvtransfer {

std::unique_ptr<Transport> open_transport(TransportKind kind, LinkStream& stream) {
  switch (kind) {
    case TransportKind::kShm:
      return std::make_unique<ShmTransport>(stream);
    case TransportKind::kTcp:
      return std::make_unique<TcpTransport>(stream);
    case TransportKind::kAuto:
      break;
  }
  PDJOB_CHECK(false, static_cast<int>(kind));
}

}  // namespace pdjob::kvtransfer
