#include "net/reply_error.h"

namespace pdjob::net {

void reply_error(HttpServer& server, ExchangeId id, const ApiError& error,
                 const std::vector<std::pair<std::string, std::string>>& headers) {
  server.reply(id, error.status, "application/json", error_body(error), headers);
}

}  // namespace pdjob::net
