#include "common/address_text.h"

namespace pdjob {

std::string address_text(const std::string& host, const std::string& port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + port;
}

std::string address_text(const std::string& host, uint16_t port) {
  return address_text(host, std::to_string(port));
}

}  // namespace pdjob
