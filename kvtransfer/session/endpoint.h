// Endpoint: the two halves of a KV endpoint, without its thread and its sockets. kv_endpoint.h
// describes the calls. KvEndpoint runs it on a thread; a simulation runs it on virtual time.
// Loop-bound, except stats(), which is Thread-safe.
#pragma once

#include <utility>
#include <vector>

#include "kvtransfer/session/endpoint_context.h"
#include "kvtransfer/session/receiver.h"
#include "kvtransfer/session/sender.h"

namespace pdjob::kvtransfer {

class Endpoint {
 public:
  explicit Endpoint(EndpointParts parts)
      : context_(std::move(parts)), sender_(context_), receiver_(context_) {}
  ~Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Sender& sender() { return sender_; }
  Receiver& receiver() { return receiver_; }
  EndpointStats stats() const;
  std::vector<PairStats> pairs();

 private:
  EndpointContext context_;
  Sender sender_;
  Receiver receiver_;
};

}  // namespace pdjob::kvtransfer
