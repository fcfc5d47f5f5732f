// HttpClient: pooled keep-alive HTTP/1.1 connections for the router's legs, probes and admin calls.
// Reply bodies are collected, or passed on raw in their own framing (pass-through). Loop-bound.
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
#include "net/http/http_address.h"
#include "net/http/http_parser.h"
#include "net/loop/loop.h"

namespace pdjob::net {

using CallId = StrongId<struct CallTag, uint64_t>;

struct HttpReplyHead {
  int status = 0;
  std::vector<HttpHeader> headers;  // Valid only during on_head().
  BodyFraming framing = BodyFraming::kNone;
  std::string_view raw;  // The whole head, as received.
  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

// The events of one call. on_end or on_error ends it; after cancel() neither is called.
class HttpCallHandler {
 public:
  // An interim response (1xx) before the reply; `head` has no framing.
  virtual void on_interim(CallId /*id*/, const HttpReplyHead& /*head*/) {}
  virtual void on_head(CallId id, const HttpReplyHead& head) = 0;
  // Body bytes as received, with chunk framing (ChunkDecoder in http_parser.h removes it).
  virtual void on_body(CallId id, std::string_view raw) = 0;
  virtual void on_end(CallId id) = 0;
  // kUnavailable: connecting failed, or the connection broke. kTimeout. kCorrupt: the reply is not
  // HTTP.
  virtual void on_error(CallId id, const Error& error) = 0;
  // For a call whose body streams: the head is sent, and no byte of the body waits.
  virtual void on_writable(CallId /*id*/) {}

 protected:
  ~HttpCallHandler() = default;
};

struct HttpCall {
  HttpAddress to;
  std::string_view method = "POST";
  std::string_view target = "/";
  // Extra header lines, each "Name: value\r\n". The client adds Host and Content-Length.
  std::string_view header_lines;
  std::string_view more_header_lines;
  std::string body;
  // More of the body follows by send_body(). The header lines have its framing, and its bytes come
  // in that framing. Such a call never uses a pooled connection, because it could not be repeated.
  bool streams = false;
  Duration connect_timeout = std::chrono::seconds(2);
  Duration head_timeout = std::chrono::hours(1);  // Until the reply's head.
  Duration idle_timeout =
      std::chrono::hours(1);                 // Between two pieces of the reply, or of the body.
  Duration total_timeout = Duration::max();  // From start() to the end of the reply.
};

class HttpClient {
 public:
  static std::unique_ptr<HttpClient> create(Loop& loop);
  virtual ~HttpClient() = default;  // Ends running calls without calling their handlers.

  // Calls the handler only after it has returned. If a pooled connection fails before the first
  // byte of the reply, a fresh one replaces it once. The views of `call` must live only until it
  // returns.
  virtual CallId start(HttpCall call, HttpCallHandler& handler) = 0;
  // Returns how many bytes wait to be sent. Ignored after the call's end.
  virtual size_t send_body(CallId id, std::string_view bytes) = 0;
  virtual void end_body(CallId id) = 0;
  virtual void cancel(CallId id) = 0;  // Closes the connection, so that the worker notices.
  // Stops reading (backpressure) and the idle timeout. One more on_body() may follow, with bytes
  // that were already read.
  virtual void pause(CallId id) = 0;
  virtual void resume(CallId id) = 0;
  // Valid during on_error(): true if bytes of the request were sent, so that the other end may have
  // received it.
  virtual bool reached() const = 0;
  // Closes idle connections to a worker that is gone.
  virtual void forget(const HttpAddress& address) = 0;
  // The process at this address is gone. Ends the calls that had reached it, and wait for the
  // connection that replaces theirs, with kUnavailable. Calls their handlers before it returns.
  virtual void end_reconnecting(const HttpAddress& address) = 0;
};

// The reply of fetch(): its body is decoded, and at most `body_bytes_max` long. total_timeout is at
// most the sum of the other three timeouts.
struct HttpReply {
  int status = 0;
  std::string body;
};
void fetch(Loop& loop, HttpClient& client, HttpCall call, size_t body_bytes_max,
           std::function<void(Result<HttpReply>)> then);

}  // namespace pdjob::net
