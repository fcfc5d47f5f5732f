// Parses what workers say about themselves over HTTP. Pure.
#pragma once

#include <string>

#include "common/result.h"
#include "net/control/message.h"

namespace pdjob::router {

struct WorkerDescription {
  net::WorkerEntry entry;  // Without host and port, which the caller knows.
  net::WorkerLoad load;
  bool draining = false;  // It takes no new requests.
};

// Parses the reply to GET /pdjob/worker.
Result<WorkerDescription> parse_worker_description(const std::string& body);

}  // namespace pdjob::router
