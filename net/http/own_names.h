// Whether a request to a loopback address is one of this machine's own users. Any web page can send
// requests to loopback; a page whose name resolves to it (DNS rebinding) even reads the answers.
// But browsers say which host they ask and which page asks. Pure.
#pragma once

#include <string_view>

#include "net/http/http_server.h"

namespace pdjob::net {

// A host as in a URL or a setting, without a port: 127.0.0.1, ::1, localhost.
bool is_loopback(std::string_view host);

// The value of a Host header, with or without a port: loopback, or a name that no public DNS server
// can have (without a dot, or in .localhost or .internal). Empty: no browser sent it.
bool names_this_machine(std::string_view host_header);

// Its Host names this machine, and so does its Origin, if it has one that may not call.
bool is_of_this_machine(const HttpRequest& request, const CorsOptions& allowed);

// The reply to another request: 403.
EarlyReply refuse_other_names();

}  // namespace pdjob::net
