#include "openai/reply_error.h"

namespace pdjob::openai {

void reply_error(net::HttpServer& server, net::ExchangeId id, const ApiError& error,
                 const std::vector<std::pair<std::string, std::string>>& headers) {
  server.reply(id, error.status, "application/json", error_body(error), headers);
}

}  // namespace pdjob::openai
