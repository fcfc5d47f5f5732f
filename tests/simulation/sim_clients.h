// The clients of a simulated job: OpenAI requests over HTTP, from a process that never fails. Each
// request ends exactly once. A complete reply has the oracle's text.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/http/http_client.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_engine.h"
#include "tests/simulation/sim_process.h"
#include "tests/simulation/workload.h"

namespace pdjob::simulation {

class SimClients final : net::HttpCallHandler {
 public:
  using Trace = std::function<void(const std::string&)>;

  SimClients(SimProcess& process, Invariants& invariants, Oracle& oracle, Trace trace);

  // The job is at this address.
  void send(const Ask& ask, const net::HttpAddress& router);
  void leave(RequestId id);

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
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Call {
    Ask ask;
    int status = 0;
    bool chunked = false;
    net::ChunkDecoder chunks;
    std::string body;
  };

  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;

  void check_status(const Call& call);
  void check_reply(const Call& call);

  Invariants& invariants_;
  Oracle& oracle_;
  const Trace trace_;
  const std::unique_ptr<net::HttpClient> client_;
  std::map<net::CallId, Call> calls_;
  Counts counts_;
  bool broke_ = false;
  // The killer may still kill until its worker learns that the client left.
  bool killer_left_ = false;
};

}  // namespace pdjob::simulation
