// An error reply over HTTP, in OpenAI's format.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "net/http_server.h"
#include "net/openai.h"

namespace pdjob::net {

// Sends one whole reply with extra `headers`.
void reply_error(HttpServer& server, ExchangeId id, const ApiError& error,
                 const std::vector<std::pair<std::string, std::string>>& headers = {});

}  // namespace pdjob::net
