// tcp: rows follow their ROWS message on the link's socket, gathered straight from the source and
// scattered straight into the target. Loop-bound.
#pragma once

#include <memory>

#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

class TcpTransport final : public Transport {
 public:
  // Bytes of one range. While its rows follow on the socket, nothing else of the link can be sent.
  static constexpr uint64_t kRangeBytes = 512 * limits::kKiB;

  explicit TcpTransport(LinkStream& stream) : stream_(stream) {}

  TransportCapabilities capabilities() const override {
    return {.name = "tcp", .rows_on_link = true, .range_bytes = kRangeBytes};
  }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, Fd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override;

 private:
  LinkStream& stream_;
};

}  // namespace pdjob::kvtransfer
