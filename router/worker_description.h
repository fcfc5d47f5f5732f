// What workers say of themselves to whoever asks over HTTP. Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "net/message.h"

namespace pdjob::router {

struct WorkerDescription {
  net::WorkerEntry entry;  // Without host and port, which the asker knows.
  net::WorkerLoad load;
  bool draining = false;  // It takes nothing new.
};

// The reply to GET /pdjob/worker.
Result<WorkerDescription> parse_worker_description(std::string_view body);

// The first model in the reply to GET /v1/models; empty if there is none.
std::string first_model(std::string_view body);

}  // namespace pdjob::router
