// A refusal over HTTP, in OpenAI's shape.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "net/http_server.h"
#include "net/openai.h"

namespace pdjob::net {

// One whole reply. `headers` are extra ones.
void reply_error(HttpServer& server, ExchangeId id, const ApiError& error,
                 const std::vector<std::pair<std::string, std::string>>& headers = {});

}  // namespace pdjob::net
