// The clients of a simulated job: OpenAI requests over HTTP, from a process that never fails. Each
// request ends exactly once. A complete reply has the oracle's text.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/simulator/sim_process.h"
#include "net/http/http_client.h"
#include "tests/simulation/faulty_engine.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/workload.h"

namespace pdjob::simulation {

// The request on the wire. Tenants count from 1; 0: the job has none.
std::string body_of(const Ask& ask);
std::string headers_of(uint32_t tenant);
std::string key_of_tenant(uint32_t tenant);
// The texts of a reply to it; nullopt: it is not complete.
std::optional<std::vector<SimText>> texts_of(const Ask& ask, std::string_view body);

class SimClients final : net::HttpCallHandler {
 public:
  using Trace = std::function<void(const std::string&)>;

  SimClients(SimProcess& process, Invariants& invariants, Oracle& oracle, Trace trace);

  // The job is at this address.
  void send(const Ask& ask, const net::HttpAddress& router);
  void leave(RequestId id);
  // This is asked for, by these clients or by others.
  void note(const Ask& ask);

  // The killer crashed a worker.
  void on_kill();
  // Some connection of the job broke without a crash. If a worker crashes soon after, the two look
  // the same.
  void on_connection_broken() { broke_ = true; }

  uint64_t waiting_count() const { return calls_.size(); }
  std::string list_waiting() const;
  struct Counts {
    uint64_t served = 0, failed = 0, refused = 0, aborted = 0, left = 0;
    uint64_t kills = 0, blamed = 0;
    uint64_t tokens_cached = 0, from_cache = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Call {
    Ask ask;
    int status = 0;
    bool chunked = false;
    bool from_cache = false;
    net::ChunkDecoder chunks;
    std::string body;
  };

  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;

  void check_status(const Call& call);
  void check_reply(const Call& call);
  // A reply from the cache is that of the same tenant's earlier request.
  void check_sharing(const Call& call);

  Invariants& invariants_;
  Oracle& oracle_;
  const Trace trace_;
  const std::unique_ptr<net::HttpClient> client_;
  std::map<net::CallId, Call> calls_;
  Counts counts_;
  std::map<uint32_t, std::multiset<std::string>> bodies_;  // By tenant.
  bool broke_ = false;
  // The killer may still kill until its worker learns that the client left.
  bool killer_left_ = false;
};

}  // namespace pdjob::simulation
