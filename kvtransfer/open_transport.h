// The one place that knows every transport.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kvtransfer/config/kvtransfer_config.h"
#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

// Returns the transports that an endpoint may use, preferred first. `device`: as in
// EndpointOptions. kInvalidArgument: the configured one needs a GPU.
Result<std::vector<TransportTraits>> transports_of(const KvTransferConfig& config,
                                                   std::optional<uint32_t> device);

// The stream and the devices outlive the transport. Requires: kind != kAuto; nccl for kNccl; gpu
// for kCudaIpc.
std::unique_ptr<Transport> open_transport(TransportKind kind, LinkStream& stream,
                                          TransportSide side, const TransportDevices& devices);

}  // namespace pdjob::kvtransfer
