#include "net/http/cors.h"

#include <algorithm>

namespace pdjob::net {
namespace {

constexpr std::string_view kMethods = "GET, HEAD, POST, PUT, DELETE";
constexpr std::string_view kAnyOrigin = "*";
constexpr std::string_view kMaxAgeSeconds = "600";

// The value of Access-Control-Allow-Origin; empty: this page is not allowed.
std::string_view allowed_origin(const CorsOptions& options, std::string_view origin) {
  const auto has = [&options](std::string_view one) {
    return std::ranges::find(options.origins, one) != options.origins.end();
  };
  if (origin.empty()) {
    return {};
  }
  return has(kAnyOrigin) ? kAnyOrigin : has(origin) ? origin : std::string_view();
}

}  // namespace

bool allows_page(const CorsOptions& options, std::string_view origin) {
  return !allowed_origin(options, origin).empty();
}

std::string cors_lines(const CorsOptions& options, const std::vector<HttpHeader>& headers) {
  std::string lines;
  const std::string_view allowed = allowed_origin(options, find_header(headers, "origin"));
  if (allowed.empty()) {
    return lines;
  }
  lines.append("Access-Control-Allow-Origin: ").append(allowed).append("\r\n");
  if (allowed != kAnyOrigin) {
    lines.append("Vary: Origin\r\n");
  }
  if (!options.exposed.empty()) {
    lines.append("Access-Control-Expose-Headers: ").append(options.exposed).append("\r\n");
  }
  return lines;
}

std::optional<std::vector<std::pair<std::string, std::string>>> preflight_headers(
    const CorsOptions& options, std::string_view method, const std::vector<HttpHeader>& headers) {
  const bool asks = method == "OPTIONS" && options.on() &&
                    !find_header(headers, "access-control-request-method").empty();
  if (!asks || allowed_origin(options, find_header(headers, "origin")).empty()) {
    return std::nullopt;
  }
  std::vector<std::pair<std::string, std::string>> reply = {
      {"Access-Control-Allow-Methods", std::string(kMethods)},
      {"Access-Control-Max-Age", std::string(kMaxAgeSeconds)}};
  // All of them: keys and contents are checked by the call itself.
  if (const auto asked = find_header(headers, "access-control-request-headers"); !asked.empty()) {
    reply.emplace_back("Access-Control-Allow-Headers", asked);
  }
  return reply;
}

}  // namespace pdjob::net
