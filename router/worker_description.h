// What workers say of themselves to whoever asks over HTTP. Pure.
#pragma once

#include <string>

#include "common/result.h"
#include "net/message.h"

namespace pdjob::router {

struct WorkerDescription {
  net::WorkerEntry entry;  // Without host and port, which the asker knows.
  net::WorkerLoad load;
  bool draining = false;  // It takes nothing new.
};

// The reply to GET /pdjob/worker.
Result<WorkerDescription> parse_worker_description(const std::string& body);

// The model in the reply to GET /v1/models; empty if there is none or several, which its engine
// tells apart itself.
std::string only_model(const std::string& body);

}  // namespace pdjob::router
