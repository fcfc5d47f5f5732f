// tcp: rows follow their ROWS message on the link's socket, gathered straight from the source and
// scattered straight into the target. Loop-bound.
#pragma once

#include <memory>

#include "kvtransfer/transport.h"

namespace pdjob::kvtransfer {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(LinkStream& stream) : stream_(stream) {}

  TransportCapabilities capabilities() const override {
    return {.name = "tcp", .writes_target = false, .rows_on_link = true};
  }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, UniqueFd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(TransferId id, const Region& target) override;

 private:
  LinkStream& stream_;
};

}  // namespace pdjob::kvtransfer
