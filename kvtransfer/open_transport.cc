#include "kvtransfer/open_transport.h"

#include "common/check.h"
#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "kvtransfer/link/staged_transport.h"
#include "kvtransfer/nccl/nccl_transport.h"
#include "kvtransfer/shm/shm_transport.h"
#include "kvtransfer/tcp/tcp_transport.h"

namespace pdjob::kvtransfer {
namespace {

std::unique_ptr<Transport> staged(std::unique_ptr<Transport> transport, LinkStream& stream,
                                  Gpu* gpu) {
  return gpu == nullptr ? std::move(transport)
                        : std::make_unique<StagedTransport>(std::move(transport), stream, *gpu);
}

}  // namespace

Result<std::vector<TransportTraits>> transports_of(const KvTransferConfig& config,
                                                   std::optional<uint32_t> device) {
  const TransportTraits cuda_ipc{.kind = TransportKind::kCudaIpc,
                                 .unix_name = &EndpointAddress::gpu_path,
                                 .target = TargetMemory::kGpu};
  const TransportTraits shm{.kind = TransportKind::kShm,
                            .unix_name = &EndpointAddress::unix_path,
                            .target = TargetMemory::kShared};
  const TransportTraits tcp{.kind = TransportKind::kTcp, .streams = config.tcp.streams};
  const TransportTraits nccl{.kind = TransportKind::kNccl, .start_max = config.nccl.init_timeout};
  switch (config.transport) {
    case TransportKind::kAuto:
      return device ? std::vector{cuda_ipc, shm, tcp} : std::vector{shm, tcp};
    case TransportKind::kShm:
      return std::vector{shm};
    case TransportKind::kTcp:
      return std::vector{tcp};
    case TransportKind::kNccl:
      return std::vector{nccl};
    case TransportKind::kCudaIpc:
      break;
  }
  if (!device) {
    return Error{
        ErrorCode::kInvalidArgument,
        "kvtransfer.transport is cuda_ipc, but the engine keeps its KV in the host's memory"};
  }
  return std::vector{cuda_ipc};
}

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

}  // namespace pdjob::kvtransfer
