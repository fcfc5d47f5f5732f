#include "batch/row_client.h"

#include <utility>

#include "batch/http_row_client.h"
#include "batch/outbound_row_client.h"

namespace pdjob::batch {

Result<RowServer> parse_row_server(const std::string& url) {
  const std::string text = url.find("://") == std::string::npos ? "http://" + url : url;
  PDJOB_TRY(net::Url parsed, net::parse_url(text));
  return RowServer{.url = std::move(parsed)};
}

std::unique_ptr<RowClient> make_row_client(net::EventLoop& loop, const RowServer& server) {
  if (server.url.https) {
    return std::make_unique<OutboundRowClient>(loop, server);
  }
  return std::make_unique<HttpRowClient>(loop, server);
}

}  // namespace pdjob::batch
