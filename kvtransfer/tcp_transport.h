// tcp: rows follow their ROWS message on the link's socket, gathered straight from the source and
// scattered straight into the target. Loop-bound.
#pragma once

#include <memory>

#include "kvtransfer/transport.h"

namespace pdjob::kvtransfer {

class TcpTransport final : public Transport {
 public:
  // The rows of a range follow on the socket: nobody else of the link can send meanwhile.
  static constexpr uint64_t kRangeBytes = 512 * limits::kKiB;

  explicit TcpTransport(LinkStream& stream) : stream_(stream) {}

  TransportCapabilities capabilities() const override {
    return {.name = "tcp", .rows_on_link = true, .range_bytes = kRangeBytes};
  }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, UniqueFd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override;

 private:
  LinkStream& stream_;
};

}  // namespace pdjob::kvtransfer
