// HttpServer: HTTP/1.1 for all roles. It has a strict head parser, whole or streamed bounded
// request bodies, whole or streamed replies, and raw pass-through for the router. Keep-alive and
// pipelined requests are answered in order. With TLS, clients speak HTTPS and nothing else.
//
// An ExchangeId names a request. Writing to the id of an ended exchange does nothing, so a late
// token of a helper thread cannot reach the wrong client.
//
// No function with an ExchangeId ever calls the handler. If a write finds that the client has left,
// the handler learns it at the end of the turn; until then the id stays valid. Loop-bound.
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
#include "net/http/cors.h"
#include "net/http/held_bytes.h"
#include "net/http/http_parser.h"
#include "net/loop/loop.h"

namespace pdjob::net {

class ServerTls;

using ExchangeId = StrongId<struct ExchangeTag, uint64_t>;

// Valid until the handler returns. The handler may move `body` out.
struct HttpRequest {
  static constexpr size_t kBodySlack =
      64;  // Spare capacity of `body`, for parsers that read ahead.

  std::string_view method;  // GET for HEAD.
  bool is_head = false;     // No byte of the reply's body is sent.
  std::string_view path;    // Without the query, and without empty segments.
  std::string_view query;   // Without '?'.
  std::vector<HttpHeader> headers;
  std::string body;
  // on_head() sets the account that the body's bytes count for, and their limit.
  HeldBytes::Account account = 0;
  size_t body_bytes_max = 0;
  // on_head() may set it: on_request() comes at once, without the body. It arrives by on_body(),
  // and counts for no account. False again in on_request() if there is no body.
  bool streams = false;
  // The first header of that name, ignoring case; empty if absent.
  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

// A JSON reply to a request whose body is not read.
struct EarlyReply {
  int status = 0;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

enum class BodyPart { kMoreComes, kLast };

class HttpHandler {
 public:
  // The head is complete; no byte of the body is stored yet. Returning a reply ends the request
  // without an ExchangeId or on_request(). A client that waits for "100 Continue" then sends no
  // body. Otherwise a short body is skipped; after a long one the connection is closed.
  virtual std::optional<EarlyReply> on_head(HttpRequest& /*request*/) { return std::nullopt; }
  virtual void on_request(ExchangeId id, HttpRequest& request) = 0;
  // Bytes of a body that streams, without its framing; kLast once, if the client sent all of it. A
  // reply before that ends the request; the connection closes after it.
  virtual void on_body(ExchangeId /*id*/, std::string_view /*bytes*/, BodyPart /*part*/) {}
  // The client left before the reply was complete.
  virtual void on_client_gone(ExchangeId id) = 0;
  // The send queue was over limits::kHttpSendQueueBytesMax and is now below half of it.
  virtual void on_writable(ExchangeId /*id*/) {}

 protected:
  ~HttpHandler() = default;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;         // 0: any free port.
  int listen_fd = -1;        // A listening socket to take over; host and port are ignored then.
  bool own_port = false;     // It also listens on a free loopback port of its own.
  bool shares_port = false;  // With other processes.
  ServerTls* tls = nullptr;  // Outlives the server. Null: plain. The own port is always plain.
  // Requests that name another host, or come from another site's page, get 403 (own_names.h).
  bool own_names_only = false;
  // Connections wait, unaccepted, until start_accepting().
  bool accepts_later = false;
  size_t body_bytes_max = 0;                            // 0: limits::kHttpBodyBytesMax.
  Duration idle_timeout = std::chrono::seconds(75);     // For a connection between requests.
  Duration request_timeout = std::chrono::seconds(60);  // For a whole request to arrive.
  Duration stream_timeout = std::chrono::hours(1);      // For a body that streams.
  // Beyond, the connection that has waited longest for a request is closed; if none waits, the new
  // one gets 503. 0: limits::kHttpConnectionsMax, or what the process's descriptors allow.
  size_t connections_max = 0;
  size_t held_bytes_max = 0;          // For all requests; 0: limits::kHttpHeldBytesMax.
  size_t account_held_bytes_max = 0;  // For one account's requests; 0: a quarter of held_bytes_max.
  CorsOptions cors;
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> open(Loop& loop, HttpHandler& handler,
                                                  const HttpServerOptions& options);
  virtual ~HttpServer() = default;  // Closes all connections.

  virtual uint16_t port() const = 0;
  // The extra port if own_port was set, otherwise port().
  virtual uint16_t own_port() const = 0;

  // Sends one whole reply with extra `headers`. The server adds Content-Length and Content-Type.
  virtual void reply(ExchangeId id, int status, std::string_view content_type,
                     std::string_view body,
                     const std::vector<std::pair<std::string, std::string>>& headers = {}) = 0;

  // An interim response, 103 with these header lines, each "Name: value\r\n": before the reply.
  // Proxies know 103 better than 102. A client of HTTP/1.0 gets none.
  virtual void interim(ExchangeId id, std::string_view header_lines) = 0;

  // A streamed reply: begin, write..., end. Chunked in HTTP/1.1, until close in 1.0.
  virtual void begin(ExchangeId id, int status, std::string_view content_type,
                     const std::vector<std::pair<std::string, std::string>>& headers = {}) = 0;
  // `extension` ("name=value") travels with the chunk to the next hop, and may tell it more than
  // the client (RFC 9112, 7.1.1). It is dropped in a reply without chunks.
  virtual void write(ExchangeId id, std::string_view bytes, std::string_view extension = {}) = 0;
  virtual void end(ExchangeId id) = 0;

  // Pass-through: `head` is a status line and headers, with the empty line. Raw bytes with their
  // own framing follow.
  virtual void begin_raw(ExchangeId id, std::string_view head) = 0;
  virtual void write_raw(ExchangeId id, std::string_view bytes) = 0;
  // Pass false for `keep_alive` if the framing is "until close" or the upstream connection broke:
  // the connection is then closed.
  virtual void end_raw(ExchangeId id, bool keep_alive) = 0;
  // Cuts the connection, so that the client sees an incomplete reply.
  virtual void abort(ExchangeId id) = 0;

  // Stops reading a body that streams (backpressure). One more on_body() may follow.
  virtual void pause_body(ExchangeId id) = 0;
  virtual void resume_body(ExchangeId id) = 0;

  // The handler copies the body: this many bytes more count until the reply ends.
  virtual void hold_more(ExchangeId id, size_t bytes) = 0;
  // The body and its copies are freed, while the reply continues.
  virtual void body_freed(ExchangeId id) = 0;
  virtual const HeldBytes& held() const = 0;

  virtual bool is_http_1_0(ExchangeId id) const = 0;
  virtual size_t bytes_queued(ExchangeId id) const = 0;

  // Once, after open() with `accepts_later`.
  virtual void start_accepting() = 0;
  // Drain: accepts no connections, closes idle ones now, and busy ones after their reply.
  virtual void stop_accepting() = 0;
  // Exchanges, and replies that have ended while some of their bytes still wait here.
  virtual size_t replies_alive() const = 0;
};

}  // namespace pdjob::net
