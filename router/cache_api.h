// CacheApi: the response cache before the relay. A request that was answered before is answered
// again; any other one goes on to the workers, and a copy of its answer comes back here. Where
// prompts may be alike, a request waits for its vector first, but not for long: without it, it goes
// on. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/event_loop.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "router/relay_api.h"
#include "router/request_digest.h"
#include "router/response_cache.h"
#include "router/warn_gate.h"

namespace pdjob::router {

class CacheApi {
 public:
  // `config` has a cache.
  CacheApi(net::EventLoop& loop, net::HttpServer& server, RelayApi& relay,
           const RouterConfig& config);
  ~CacheApi();
  CacheApi(const CacheApi&) = delete;
  CacheApi& operator=(const CacheApi&) = delete;

  // Takes a generation over, as RelayApi::route() does.
  void route(net::ExchangeId client, net::HttpRequest& request, RequestBody body);
  void client_left(net::ExchangeId client);
  // Nobody waits for a vector any longer.
  void let_all_go_on();

  const ResponseCache& cache() const { return cache_; }

 private:
  // A request on its way past the cache.
  struct Asked {
    net::ExchangeId client;
    net::HeldBytes::Account account = 0;
    RequestBody body;
    std::string path;
    std::vector<std::pair<std::string, std::string>> headers;
    ResponseCache::Key key;
    std::optional<ResponseCache::Meaning> meaning;
    bool look_up = true;
    Instant arrived{};
    net::TimerId deadline;  // While it waits for its vector.

    net::HttpRequest request() const;  // Views of this.
  };

  bool may_embed(const RequestDigest& digest) const;
  void ask_for_vector(Asked asked, const RequestDigest& digest);
  void take_vector(net::ExchangeId client, const Result<net::HttpReply>& reply);
  void answer(const Asked& asked, const ResponseCache::Found& found, CacheResult result);
  void pass_on(Asked asked);
  void keep(const ResponseCache::Key& key, std::optional<ResponseCache::Meaning> meaning,
            CapturedReply reply);
  // Nothing: its client has left, or it waits no longer.
  std::optional<Asked> take_waiting(net::ExchangeId client);
  void note_failed_embedding(const std::string& why);

  net::EventLoop& loop_;
  net::HttpServer& server_;
  RelayApi& relay_;
  const CacheConfig config_;
  const bool open_to_all_;
  ResponseCache cache_;
  const net::HttpAddress embedder_;
  const std::unique_ptr<net::HttpClient> client_;
  std::unordered_map<net::ExchangeId, Asked> waiting_;
  size_t embeddings_in_flight_ = 0;
  WarnGate warning_{std::chrono::seconds(10)};
};

}  // namespace pdjob::router
