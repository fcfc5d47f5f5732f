#include "net/outbound/url.h"

#include <algorithm>
#include <utility>

namespace pdjob::net {
namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::string_view kHttps = "https://";
constexpr uint16_t kHttpsPort = 443;

// Characters that a request line may contain without escaping.
bool is_path_char(char c) { return c > ' ' && c <= '~' && c != '#'; }

bool has_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  return colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos;
}

}  // namespace

std::string Url::to_string() const {
  return std::string(https ? kHttps : kHttp) + address.to_string() + path;
}

Result<Url> parse_url(std::string_view text) {
  const Error error{ErrorCode::kInvalidArgument,
                    "must be http://host:port/path or https://host:port/path"};
  Url url{.https = text.starts_with(kHttps)};
  if (!url.https && !text.starts_with(kHttp)) {
    return error;
  }
  text.remove_prefix(url.https ? kHttps.size() : kHttp.size());
  const size_t end = std::min(text.find_first_of("/?"), text.size());
  const std::string_view host = text.substr(0, end);
  const std::string_view path = text.substr(end);
  auto address = parse_http_address(std::string(kHttp) + std::string(host));
  if (host.empty() || !address || address->port == 0 || !std::ranges::all_of(path, is_path_char)) {
    return error;
  }
  url.address = *std::move(address);
  if (url.https && !has_port(host)) {
    url.address.port = kHttpsPort;
  }
  for (char& c : url.address.host) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  url.path = path.starts_with('?') ? '/' + std::string(path) : std::string(path);
  return url;
}

Result<Url> parse_service_url(std::string_view text) {
  const bool has_scheme = text.find("://") != std::string_view::npos;
  auto url = parse_url(has_scheme ? std::string(text) : std::string(kHttp) + std::string(text));
  if (!url || !url->path.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "must be http://host:port or https://host:port, got " + std::string(text)};
  }
  return url;
}

}  // namespace pdjob::net
