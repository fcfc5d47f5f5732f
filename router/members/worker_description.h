// Parses what workers say about themselves over HTTP. Pure.
#pragma once

#include <cstdint>
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

// The model in the reply to GET /v1/models, with facts as in WorkerEntry. Its id is empty if there
// is none, or if there are several, which the engine then tells apart itself.
struct OnlyModel {
  std::string id;
  uint64_t created = 0;
  uint32_t context_max = 0;
};
OnlyModel only_model(const std::string& body);

}  // namespace pdjob::router
