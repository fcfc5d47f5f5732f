// The text of a reply's head, and of replies that the server makes itself. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http/http_parser.h"

namespace pdjob::net {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

// Appends the status line and these headers; framing and the empty line follow.
void append_reply_head(std::string& out, int status, std::string_view content_type,
                       const HeaderList& headers);
void append_number(std::string& out, size_t number);

// The reply to a refused message, in OpenAI's format.
HeaderList refusal_headers(const HttpRefusal& refusal);
std::string refusal_body(const HttpRefusal& refusal);

// Header Allow of a 405 (RFC 9110, 15.5.6): these methods, and HEAD beside GET.
std::pair<std::string, std::string> allow_header(std::span<const std::string_view> methods);

}  // namespace pdjob::net
