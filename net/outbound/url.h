// Url: where a call to the outside goes. Accepts only what is needed for that, so that no two
// parsers can read one text differently. Value.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "net/http/http_client.h"

namespace pdjob::net {

struct Url {
  bool https = false;
  HttpAddress address;  // The host in lower case; without a port: 80 or 443.
  std::string path;     // With its query; empty or begins with '/'.

  // "https://host:port/path", always with the port.
  std::string to_string() const;
};

// "http://host:port/path" or "https://...". A user, a fragment, spaces, and escapes in the host are
// refused.
Result<Url> parse_url(std::string_view text);
// For a service that the operator names: without a path, and "host:port" means http.
Result<Url> parse_service_url(std::string_view text);

}  // namespace pdjob::net
