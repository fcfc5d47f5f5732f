// shm: the receiver's memfd comes with the grant, and the sender copies rows straight into it. ROWS
// names the range being written; LANDED reports its progress. So the receiver hashes right behind
// the sender, even within a long range. Loop-bound.
#pragma once

#include <map>
#include <memory>

#include "common/limits.h"
#include "kvtransfer/link/transport.h"
#include "kvtransfer/rows/shared_mapping.h"

namespace pdjob::kvtransfer {

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(LinkStream& stream) : stream_(stream) {}

  TransportCapabilities capabilities() const override {
    return {.name = "shm", .writes_target = true};
  }
  Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, Fd shared) override;
  std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) override;
  bool on_message(const LinkMessage& message) override;

 private:
  class Receiver;

  LinkStream& stream_;
  std::map<TransferId, Receiver*> receivers_;
  MappingCache mappings_{limits::kSharedMappingsMax};
};

}  // namespace pdjob::kvtransfer
