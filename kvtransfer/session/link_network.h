// LinkNetwork: how an endpoint reaches its peers. Loop-bound.
#pragma once

#include <memory>

#include "common/result.h"
#include "kvtransfer/link/endpoint_address.h"
#include "kvtransfer/link/link_socket.h"
#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

class LinkNetwork {
 public:
  // Begins to connect to the listener of this transport.
  virtual Result<std::unique_ptr<LinkSocket>> connect(const EndpointAddress& peer,
                                                      const TransportTraits& transport) = 0;

 protected:
  ~LinkNetwork() = default;
};

}  // namespace pdjob::kvtransfer
