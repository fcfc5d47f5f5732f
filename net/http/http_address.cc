#include "net/http/http_address.h"

#include <algorithm>

#include "common/address_text.h"
#include "common/parse_number.h"

namespace pdjob::net {
namespace {

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}
bool is_ipv6_char(char c) {
  return (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= '9') || c == ':' ||
         c == '.';
}

}  // namespace

std::string HttpAddress::to_string() const { return address_text(host, port); }

Result<HttpAddress> parse_http_address(std::string_view text) {
  const Error error{ErrorCode::kInvalidArgument,
                    "not an address of the form http://host:port: \"" + std::string(text) + "\""};
  constexpr std::string_view kScheme = "http://";
  const bool has_scheme = text.starts_with(kScheme);
  if (has_scheme) {
    text.remove_prefix(kScheme.size());
  }
  HttpAddress address;
  if (text.starts_with('[')) {
    const size_t end = std::min(text.find(']'), text.size() - 1);
    address.host = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (address.host.find(':') == std::string::npos ||
        !std::ranges::all_of(address.host, is_ipv6_char)) {
      return error;
    }
  } else {
    const size_t end = std::min(text.find(':'), text.size());
    address.host = text.substr(0, end);
    text.remove_prefix(end);
    if (address.host.empty() || !std::ranges::all_of(address.host, is_host_char)) {
      return error;
    }
  }
  if (text.empty()) {
    return has_scheme ? Result<HttpAddress>(address) : Result<HttpAddress>(error);
  }
  const auto port = parse_number<uint16_t>(text.substr(1));
  if (text.front() != ':' || !port) {
    return error;
  }
  address.port = *port;
  return address;
}

}  // namespace pdjob::net
