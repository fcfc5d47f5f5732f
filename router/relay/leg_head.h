// Heads on their way through the router: which lines of a client's head reach a worker, and which
// lines of a worker's head reach the client. End-to-end headers pass unchanged; headers of one
// connection (RFC 9110, 7.6.1) do not pass. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "net/http/http_client.h"
#include "net/http/http_server.h"

namespace pdjob::router {

struct LegHead {
  bool own_key = false;          // The client's Authorization is for the router.
  bool traced = false;           // Each leg has its own traceparent.
  std::string_view tenant = {};  // Sent to workers as x-pdjob-tenant; empty: no tenants.
  bool background = false;       // Sent to workers as x-pdjob-background.
};
// Returns the header lines for all legs of a request: the client's own, without x-request-id. A
// client's own x-pdjob-tenant, x-pdjob-background, x-pdjob-kv-store or x-pdjob-kv-elsewhere never
// passes.
std::string leg_header_lines(const net::HttpRequest& request, const LegHead& how = {});

// Headers that the router adds to a relayed reply. Empty ones are left out.
struct ReplyMarks {
  std::string_view request_id;
  std::string_view prefill;  // Worker names.
  std::string_view decode;
  std::string_view more = {};  // Whole header lines.
};

enum class ReplyFraming {
  kAsReceived,
  // The router removes the chunks, or the worker ends its body by closing. The client's connection
  // closes after the body.
  kUntilClose,
};

// Headers that no worker gets from a client: hop-by-hop ones, and those that the router makes or
// keeps. All others pass.
std::vector<std::string_view> headers_kept_from_workers();

// Returns a whole head, from the status line to the empty line.
std::string reply_head(const net::HttpReplyHead& head, const ReplyMarks& marks,
                       ReplyFraming framing);

}  // namespace pdjob::router
