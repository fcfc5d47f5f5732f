// Heads on their way through the router: what of a client's head reaches a worker, and what of a
// worker's head reaches the client. Everything end-to-end passes as it is; what belongs to one
// connection (RFC 9110, 7.6.1) stops here. Pure.
#pragma once

#include <string>
#include <string_view>

#include "net/http_client.h"
#include "net/http_server.h"

namespace pdjob::router {

struct LegHead {
  bool own_key = false;          // Authorization was meant for the router.
  bool traced = false;           // Each leg has a traceparent of its own.
  std::string_view tenant = {};  // Told to workers as x-pdjob-tenant; empty: there are none.
};
// Header lines for all legs of a request: the client's own, without x-request-id. A client's own
// x-pdjob-tenant never passes.
std::string leg_header_lines(const net::HttpRequest& request, const LegHead& how = {});

// What the router adds to a relayed reply. Empty names are left out.
struct ReplyMarks {
  std::string_view request_id;
  std::string_view prefill;  // Worker names.
  std::string_view decode;
  std::string_view more = {};  // Whole header lines.
};

enum class ReplyFraming {
  kAsReceived,
  kUntilClose,  // Chunks are taken off, or the worker ends its body by closing: the client's
                // connection closes after it.
};

// A whole head, status line to empty line.
std::string reply_head(const net::HttpReplyHead& head, const ReplyMarks& marks,
                       ReplyFraming framing);

}  // namespace pdjob::router
