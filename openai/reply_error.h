// An error reply over HTTP, in OpenAI's format.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "net/http/http_server.h"
#include "openai/openai.h"

namespace pdjob::openai {

// Sends one whole reply with extra `headers`.
void reply_error(net::HttpServer& server, net::ExchangeId id, const ApiError& error,
                 const std::vector<std::pair<std::string, std::string>>& headers = {});

}  // namespace pdjob::openai
