// StagedTransport: runs a transport that reaches only the host's memory, for an endpoint whose rows
// are in a GPU's. Each range passes through pinned memory. The copy is waited for: a range is
// small, and the rest of its way is slower. The inner transport's guarantees, such as its digest,
// cover the pinned memory only. Regions in the host's memory go straight to the inner transport.
// Loop-bound.
#pragma once

#include <memory>
#include <utility>

#include "gpu/gpu.h"
#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

class StagedTransport final : public Transport {
 public:
  // The GPU outlives the transport. Receiving into GPU memory requires that rows come on the link.
  StagedTransport(std::unique_ptr<Transport> transport, LinkStream& stream, Gpu& gpu)
      : transport_(std::move(transport)), stream_(stream), gpu_(gpu) {}

  TransportCapabilities capabilities() const override { return transport_->capabilities(); }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, Fd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override;
  bool on_message(const LinkMessage& message) override { return transport_->on_message(message); }

 private:
  const std::unique_ptr<Transport> transport_;
  LinkStream& stream_;
  Gpu& gpu_;
};

}  // namespace pdjob::kvtransfer
