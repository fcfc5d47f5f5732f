// ClientSinks makes the sinks that write to clients of the HTTP server, and knows which request a
// client waits for. An entry lives as long as its sink. Loop-bound.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/id.h"
#include "net/http/http_server.h"
#include "router/relay/reply_sink.h"

namespace pdjob::router {

class ClientSinks {
 public:
  // `server` must outlive it; it must outlive its sinks.
  explicit ClientSinks(net::HttpServer& server) : server_(server) {}
  ~ClientSinks() = default;
  ClientSinks(const ClientSinks&) = delete;
  ClientSinks& operator=(const ClientSinks&) = delete;

  std::unique_ptr<ReplySink> open(net::ExchangeId client, RequestId request);
  // Empty: the client waits for no relayed reply.
  std::optional<RequestId> find(net::ExchangeId client) const;

 private:
  class Sink;

  net::HttpServer& server_;
  std::unordered_map<net::ExchangeId, RequestId> requests_;
  std::string dechunked_;  // The bytes of the write under way.
};

}  // namespace pdjob::router
