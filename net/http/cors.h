// CORS (the Fetch standard, 3.2): which web pages of other origins may call a server, and read its
// replies. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http/http_parser.h"

namespace pdjob::net {

struct CorsOptions {
  std::vector<std::string> origins;  // "https://chat.example"; "*": any. Empty: CORS is off.
  std::string exposed;               // The names of reply headers that pages may read.
  bool on() const { return !origins.empty(); }
};

// Whether pages of this origin may call.
bool allows_page(const CorsOptions& options, std::string_view origin);

// The header lines that every reply to the request gets. Empty: the page may not read it.
std::string cors_lines(const CorsOptions& options, const std::vector<HttpHeader>& headers);

// The headers of the reply (204) to a browser's question before its call. Empty optional: this is
// no such question, or its page may not call. The question shows no key.
std::optional<std::vector<std::pair<std::string, std::string>>> preflight_headers(
    const CorsOptions& options, std::string_view method, const std::vector<HttpHeader>& headers);

}  // namespace pdjob::net
