// The clients of asynchronous requests in a simulated job. A request that was accepted gets one
// answer, whatever dies meanwhile, and keeps it. Nobody but its tenant can see it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/simulator/sim_process.h"
#include "net/http/http_client.h"
#include "tests/simulation/faulty_engine.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_clients.h"
#include "tests/simulation/workload.h"

namespace pdjob::simulation {

class SimAsyncClients {
 public:
  struct Counts {
    uint64_t accepted = 0, answered = 0, failed = 0, refused = 0, deleted = 0;
  };

  SimAsyncClients(SimProcess& process, Invariants& invariants, Oracle& oracle,
                  SimClients::Trace trace, const net::HttpAddress& router);

  void send(const Ask& ask);

  uint64_t waiting_count() const { return waiting_.size(); }
  std::string list_waiting() const;
  const Counts& counts() const { return counts_; }

 private:
  struct Waiting {
    Ask ask;
    std::string id;      // Empty: not accepted yet.
    std::string answer;  // The whole reply that had it; empty: none yet.
  };
  using Then = std::function<void(const Result<net::HttpReply>&)>;

  void call(const char* method, const std::string& target, uint32_t tenant, std::string body,
            Then then);
  void submitted(RequestId ask, const Result<net::HttpReply>& reply);
  // Looks again after a while.
  void look_later(RequestId ask);
  void look(RequestId ask);
  void looked(Waiting& waiting, const net::HttpReply& reply);
  void check_answer(const Waiting& waiting, const std::string& body);
  void remove(RequestId ask);
  void done(RequestId ask) { waiting_.erase(ask); }

  SimProcess& process_;
  Invariants& invariants_;
  Oracle& oracle_;
  const SimClients::Trace trace_;
  const net::HttpAddress router_;
  const std::unique_ptr<net::HttpClient> client_;
  std::map<RequestId, Waiting> waiting_;
  Counts counts_;
};

}  // namespace pdjob::simulation
