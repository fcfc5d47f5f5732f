// ReplySink: where the reply to one request goes. The relay owns the sink and writes one reply to
// it: either reply(), or begin(), some write(), and end() or abort(). It drops the sink without an
// end if nobody wants the reply any more. Bytes pass through raw. Loop-bound.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/id.h"
#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "router/relay/leg_head.h"

namespace pdjob::router {

class ReplySink {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  virtual ~ReplySink() = default;

  // A whole reply of the router itself.
  virtual void reply(int status, std::string_view content_type, std::string_view body,
                     const Headers& headers) = 0;

  // Before the reply: lines of an interim response. A slow reader does not get it.
  virtual void interim(std::string_view /*header_lines*/) {}
  // The head of a worker's reply; the marks are added to it.
  virtual void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) = 0;
  // Body bytes in the framing of that head. Returns false if the reader is slow: the caller then
  // pauses the worker until RelayApi::client_writable().
  virtual bool write(std::string_view raw) = 0;
  // Another worker writes the rest of the body.
  virtual void change_writer() = 0;
  virtual void end() = 0;
  // The reply broke off.
  virtual void abort() = 0;

  // False for an HTTP/1.0 client, which knows no chunked bodies.
  virtual bool takes_chunks() const = 0;
  // This many bytes more are in memory for the request.
  virtual void hold_more(size_t bytes) = 0;
  // The request's body and its copies are freed, while the reply continues.
  virtual void body_freed() = 0;
};

inline void reply_json(ReplySink& sink, const net::EarlyReply& reply) {
  sink.reply(reply.status, "application/json", reply.body, reply.headers);
}

}  // namespace pdjob::router
