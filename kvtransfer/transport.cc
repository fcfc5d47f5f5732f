#include "kvtransfer/transport.h"

#include "common/check.h"
#include "kvtransfer/cuda_ipc_transport.h"
#include "kvtransfer/nccl_transport.h"
#include "kvtransfer/shm_transport.h"
#include "kvtransfer/staged_transport.h"
#include "kvtransfer/tcp_transport.h"

namespace pdjob::kvtransfer {
namespace {

std::unique_ptr<Transport> staged(std::unique_ptr<Transport> transport, LinkStream& stream,
                                  Gpu* gpu) {
  return gpu == nullptr ? std::move(transport)
                        : std::make_unique<StagedTransport>(std::move(transport), stream, *gpu);
}

}  // namespace

std::unique_ptr<Transport> open_transport(TransportKind kind, LinkStream& stream,
                                          TransportSide side, const TransportDevices& devices) {
  switch (kind) {
    case TransportKind::kShm:
      return staged(std::make_unique<ShmTransport>(stream), stream, devices.gpu);
    case TransportKind::kTcp:
      return staged(std::make_unique<TcpTransport>(stream), stream, devices.gpu);
    case TransportKind::kNccl:
      PDJOB_CHECK(devices.nccl != nullptr);
      return std::make_unique<NcclTransport>(
          stream, *devices.nccl, devices.gpu,
          side == TransportSide::kReceiver ? NcclLink::Side::kReceiver : NcclLink::Side::kSender);
    case TransportKind::kCudaIpc:
      PDJOB_CHECK(devices.gpu != nullptr);
      return std::make_unique<CudaIpcTransport>(stream, *devices.gpu);
    case TransportKind::kAuto:
      break;
  }
  PDJOB_CHECK(false, static_cast<int>(kind));
}

Result<std::vector<Window>> granted_windows(const Grant& grant, std::byte* base) {
  std::vector<Window> windows;
  windows.reserve(grant.windows.size());
  for (const GrantedWindow& window : grant.windows) {
    const uint64_t bytes = uint64_t{window.row_bytes} * grant.rows;
    if (window.shared_offset > grant.shared_bytes ||
        bytes > grant.shared_bytes - window.shared_offset) {
      return Error{ErrorCode::kInvalidArgument, "a granted window lies outside of its memory"};
    }
    windows.push_back({.base = base + window.shared_offset, .row_bytes = window.row_bytes});
  }
  return windows;
}

}  // namespace pdjob::kvtransfer
