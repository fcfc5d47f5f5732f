// The one place that knows every transport.
#pragma once

#include <memory>

#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

// The stream and the devices outlive the transport. Requires: kind != kAuto; nccl for kNccl; gpu
// for kCudaIpc.
std::unique_ptr<Transport> open_transport(TransportKind kind, LinkStream& stream,
                                          TransportSide side, const TransportDevices& devices);

}  // namespace pdjob::kvtransfer
