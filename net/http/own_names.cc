#include "net/http/own_names.h"

#include <algorithm>
#include <cctype>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace pdjob::net {
namespace {

constexpr std::string_view kLocalhost = "localhost";

bool is_localhost(std::string_view host) {
  return std::ranges::equal(host, kLocalhost, [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
}

bool is_number(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_private_name(std::string_view host) {
  const bool is_name = std::ranges::any_of(
      host, [](unsigned char c) { return std::isalpha(c) != 0; });  // No number of an address.
  return is_name && (host.find('.') == std::string_view::npos || host.ends_with(".localhost") ||
                     host.ends_with(".internal"));
}

std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool has_port = colon != std::string_view::npos && is_number(host.substr(colon + 1)) &&
                        host.find(']', colon) == std::string_view::npos;
  return has_port ? host.substr(0, colon) : host;
}

}  // namespace

bool is_loopback(std::string_view host) {
  const std::string text(host);
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return is_localhost(host) ||
         (inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
}

bool names_this_machine(std::string_view host_header) {
  const std::string_view host = without_port(host_header);
  if (host.starts_with('[') && host.ends_with(']')) {
    return host.find(':') != std::string_view::npos && is_loopback(host.substr(1, host.size() - 2));
  }
  return host.empty() ||
         (host.find(':') == std::string_view::npos && (is_loopback(host) || is_private_name(host)));
}

bool is_of_this_machine(const HttpRequest& request, const CorsOptions& allowed) {
  const std::string_view origin = request.header("origin");
  const size_t host = origin.find("://");
  const bool is_own_page = origin.empty() || allows_page(allowed, origin) ||
                           (host != std::string_view::npos && origin.size() > host + 3 &&
                            names_this_machine(origin.substr(host + 3)));
  return is_own_page && names_this_machine(request.header("host"));
}

EarlyReply refuse_other_names() {
  return {.status = 403,
          .body = R"({"error":{"message":"this address is for this machine's own users: ask )"
                  R"(127.0.0.1, localhost or [::1], and not from a page of another site","type":)"
                  R"("invalid_request_error","param":null,"code":"other_host"}})"};
}

}  // namespace pdjob::net
