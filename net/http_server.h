// HttpServer: HTTP/1.1 for all roles. Strict head parser, whole bounded request bodies, replies
// whole or streamed, raw pass-through for the router. Keep-alive and pipelined requests are
// answered in order. No TLS: loopback, or a proxy that has it.
//
// A request is named by an ExchangeId. Ids of ended exchanges are inert: writing to them does
// nothing, so a late token of a helper thread can never reach the wrong client. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "net/event_loop.h"
#include "net/held_bytes.h"
#include "net/http_parser.h"

namespace pdjob::net {

using ExchangeId = StrongId<struct ExchangeTag, uint64_t>;

// Valid until the handler returns, but for `body`, which may be moved out.
struct HttpRequest {
  std::string_view method;
  std::string_view path;   // Without the query.
  std::string_view query;  // Without '?'.
  std::vector<HttpHeader> headers;
  std::string body;
  // For on_head() to set: whose bytes the body's are, and how many there may be.
  HeldBytes::Account account = 0;
  size_t body_bytes_max = 0;
  // The first of that name, compared without case; empty if absent.
  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

// A reply in JSON to a request whose body is not read.
struct EarlyReply {
  int status = 0;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

class HttpHandler {
 public:
  // The head is complete, and no byte of the body is kept yet. A reply ends the request: it gets no
  // ExchangeId, and on_request() is not called. A client that waits for "100 Continue" then sends
  // no body; a short body is skipped, and after a long one the connection is closed.
  virtual std::optional<EarlyReply> on_head(HttpRequest& /*request*/) { return std::nullopt; }
  virtual void on_request(ExchangeId id, HttpRequest& request) = 0;
  // The client left before the reply was complete. Not called after the reply is.
  virtual void on_client_gone(ExchangeId id) = 0;
  // The send queue, which had been over limits::kHttpSendQueueBytesMax, is below half of it.
  virtual void on_writable(ExchangeId /*id*/) {}

 protected:
  ~HttpHandler() = default;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one.
  int listen_fd =
      -1;  // An already listening socket, which is taken over; host and port are ignored then.
  // Others share the port: listens at a free one of loopback, too, which is this process's alone.
  bool own_port = false;
  size_t body_bytes_max = 0;                            // 0: limits::kHttpBodyBytesMax.
  Duration idle_timeout = std::chrono::seconds(75);     // Of a connection between requests.
  Duration request_timeout = std::chrono::seconds(60);  // For a whole request to arrive.
  size_t connections_max = 0;                           // 0: limits::kHttpConnectionsMax.
  size_t held_bytes_max = 0;          // Of all requests; 0: limits::kHttpHeldBytesMax.
  size_t account_held_bytes_max = 0;  // Of those of one account; 0: a quarter of that.
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> open(EventLoop& loop, HttpHandler& handler,
                                                  const HttpServerOptions& options);
  virtual ~HttpServer() = default;  // Closes everything.

  virtual uint16_t port() const = 0;
  // As asked for by own_port; else port().
  virtual uint16_t own_port() const = 0;

  // One whole reply. `headers` are extra ones; Content-Length and Content-Type are added.
  virtual void reply(ExchangeId id, int status, std::string_view content_type,
                     std::string_view body,
                     const std::vector<std::pair<std::string, std::string>>& headers = {}) = 0;

  // A streamed reply: begin, write..., end. Chunked for HTTP/1.1, until close for 1.0.
  virtual void begin(ExchangeId id, int status, std::string_view content_type,
                     const std::vector<std::pair<std::string, std::string>>& headers = {}) = 0;
  // `extension` ("name=value") goes with the chunk to the next hop, which may be told more than the
  // client (RFC 9112, 7.1.1); left out where there are no chunks.
  virtual void write(ExchangeId id, std::string_view bytes, std::string_view extension = {}) = 0;
  virtual void end(ExchangeId id) = 0;

  // Pass-through: `head` is a whole status line and header block ending in an empty line, and raw
  // bytes follow with their own framing.
  virtual void begin_raw(ExchangeId id, std::string_view head) = 0;
  virtual void write_raw(ExchangeId id, std::string_view bytes) = 0;
  // `keep_alive` false: the framing is "until close", or the upstream broke off: the connection is
  // closed.
  virtual void end_raw(ExchangeId id, bool keep_alive) = 0;
  // Cuts the connection: the client sees an incomplete reply, which is the truth.
  virtual void abort(ExchangeId id) = 0;

  // Copies of the body are made: so many bytes more count until the reply ends.
  virtual void hold_more(ExchangeId id, size_t bytes) = 0;
  // The body and its copies are freed, though the reply goes on.
  virtual void body_freed(ExchangeId id) = 0;
  virtual const HeldBytes& held() const = 0;

  virtual bool is_http_1_0(ExchangeId id) const = 0;
  virtual size_t bytes_queued(ExchangeId id) const = 0;

  // Drain: no new connections; idle ones are closed, busy ones after their reply.
  virtual void stop_accepting() = 0;
  virtual size_t exchanges_alive() const = 0;
};

}  // namespace pdjob::net
