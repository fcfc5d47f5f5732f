// HttpClient: pooled keep-alive HTTP/1.1 connections for the router's legs, probes and admin calls.
// Reply bodies are passed on raw, in their own framing (pass-through), or collected. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "net/event_loop.h"
#include "net/http_parser.h"

namespace pdjob::net {

using CallId = StrongId<struct CallTag, uint64_t>;

struct HttpAddress {
  std::string host;  // A name or an address; names are resolved when first used, IPv4 and IPv6.
  uint16_t port = 80;
  std::string to_string() const;  // "host:port", "[::1]:port"
  friend auto operator<=>(const HttpAddress&, const HttpAddress&) = default;
};
// "http://host:port" or "host:port"; a path is refused. Port 0 is for those who listen: any free
// one.
Result<HttpAddress> parse_http_address(std::string_view text);

struct HttpReplyHead {
  int status = 0;
  std::vector<HttpHeader> headers;  // Valid during on_head only.
  BodyFraming framing = BodyFraming::kNone;
  std::string_view raw;  // The whole head, as received.
  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

// What comes back of one call. Exactly one of on_end and on_error ends it; none follows cancel().
class HttpCallHandler {
 public:
  virtual void on_head(CallId id, const HttpReplyHead& head) = 0;
  // Body bytes as received, chunk framing included (ChunkDecoder in http_parser.h takes it off).
  virtual void on_body(CallId id, std::string_view raw) = 0;
  virtual void on_end(CallId id) = 0;
  // kUnavailable: not connected, or broken off; kTimeout; kCorrupt: not HTTP.
  virtual void on_error(CallId id, const Error& error) = 0;

 protected:
  ~HttpCallHandler() = default;
};

struct HttpCall {
  HttpAddress to;
  std::string_view method = "POST";
  std::string_view target = "/";
  // Extra header lines, each "Name: value\r\n"; Host and Content-Length are added.
  std::string_view header_lines;
  std::string_view more_header_lines;
  std::string body;
  Duration connect_timeout = std::chrono::seconds(2);
  Duration head_timeout = std::chrono::hours(1);  // Until the reply's head.
  Duration idle_timeout = std::chrono::hours(1);  // Between two pieces of the reply.
  Duration total_timeout = Duration::max();       // From start() to the end of the reply.
};

class HttpClient {
 public:
  static std::unique_ptr<HttpClient> create(EventLoop& loop);
  virtual ~HttpClient() = default;  // Calls that are alive end without a word.

  // Never calls back before it returned. A pooled connection that fails before the first reply byte
  // is replaced once by a fresh one. The views of `call` need live no longer than this call.
  virtual CallId start(HttpCall call, HttpCallHandler& handler) = 0;
  virtual void cancel(CallId id) = 0;  // Closes the connection; the worker sees its client leave.
  // Stops reading (back-pressure), and the idle timeout with it. What was read already may still
  // come: at most one on_body().
  virtual void pause(CallId id) = 0;
  virtual void resume(CallId id) = 0;
  // During on_error(): there was a connection for the call, so that the other end may have it.
  virtual bool reached() const = 0;
  // Drops idle connections to a worker that is gone.
  virtual void forget(const HttpAddress& address) = 0;
};

// A whole small exchange: body decoded, at most `body_bytes_max`; without a total_timeout, in no
// more than the sum of the others.
struct HttpReply {
  int status = 0;
  std::string body;
};
void fetch(EventLoop& loop, HttpClient& client, HttpCall call, size_t body_bytes_max,
           std::function<void(Result<HttpReply>)> then);

}  // namespace pdjob::net
