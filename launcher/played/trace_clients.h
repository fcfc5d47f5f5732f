// The clients of a recorded load: each request streams its tokens, and it is noted when they come.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/played/request_trace.h"
#include "launcher/simulator/sim_process.h"
#include "net/http/http_client.h"

namespace pdjob::simulation {

// What a client saw of its request.
struct TraceOutcome {
  Duration at{};         // When it was asked, from the beginning of the load.
  bool served = false;   // All its tokens came.
  bool refused = false;  // It was answered with an error, or broke off.
  Duration ttft{};       // Until the first token.
  Duration itl{};        // Mean time between two tokens; 0 if there is only one.
  Duration gap_max{};    // The longest of these times.
};

class TraceClients final : net::HttpCallHandler {
 public:
  TraceClients(SimProcess& process, size_t requests);

  // Sends request `index` now. Its client waits for its first token since `asked`.
  void send(size_t index, const TraceRequest& request, const TraceScale& scale,
            const net::HttpAddress& router, Instant asked);

  bool all_ended() const { return ended_ == outcomes_.size(); }
  // By index. A request that has not ended is not served.
  const std::vector<TraceOutcome>& outcomes() const { return outcomes_; }

 private:
  struct Call {
    size_t index = 0;
    uint32_t tokens_wanted = 0;
    Instant asked;
    int status = 0;
    net::ChunkDecoder chunks;
    std::string unread;  // Less than one event.
    std::vector<Instant> tokens;
  };

  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override { end(id); }
  void on_error(net::CallId id, const Error& /*error*/) override { end(id); }
  void end(net::CallId id);

  SimProcess& process_;
  const std::unique_ptr<net::HttpClient> client_;
  std::map<net::CallId, Call> calls_;
  std::vector<TraceOutcome> outcomes_;
  size_t ended_ = 0;
};

}  // namespace pdjob::simulation
