// The stores of the job's KV, as workers are told of them: a worker uses the one on its own
// machine. Value.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "net/control/message.h"

namespace pdjob::router {

class KvStores {
 public:
  KvStores() = default;
  // A store without a KV address is ignored. Of several on a machine, the first one counts.
  explicit KvStores(const std::vector<net::WorkerEntry>& stores);

  // The header line for requests to this worker; empty: its machine has no store.
  std::string line_for(const net::WorkerEntry& worker) const;

 private:
  std::map<std::string, std::string> line_on_;  // By the machine's id.
};

}  // namespace pdjob::router
