// CacheApi: the response cache in front of the relay. It answers a request from the cache if it
// can. Any other request goes to the workers, and the cache gets a copy of the answer. With
// similarity search, a request first waits briefly for its vector; after the timeout it goes on
// without one. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/warn_gate.h"
#include "net/http/http_server.h"
#include "net/loop/event_loop.h"
#include "net/outbound/outbound_client.h"
#include "router/cache/request_digest.h"
#include "router/cache/response_cache.h"
#include "router/relay/relay_api.h"

namespace pdjob::router {

class CacheApi {
 public:
  // Requires: `config` has a cache.
  CacheApi(net::EventLoop& loop, net::HttpServer& server, RelayApi& relay,
           const RouterConfig& config);
  ~CacheApi();
  CacheApi(const CacheApi&) = delete;
  CacheApi& operator=(const CacheApi&) = delete;

  // Takes over a request that generates, as RelayApi::route() does.
  void route(net::ExchangeId client, net::HttpRequest& request, RequestBody body);
  void client_left(net::ExchangeId client);
  // Sends every request that waits for a vector to the workers.
  void let_all_go_on();

  const ResponseCache& cache() const { return cache_; }

 private:
  // A request on its way through the cache.
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
    net::TimerId deadline;  // For its vector.

    net::HttpRequest request() const;  // Its views point into this object.
  };

  bool may_embed(const RequestDigest& digest) const;
  void ask_for_vector(Asked asked, const RequestDigest& digest);
  void take_vector(net::ExchangeId client, const Result<net::OutboundReply>& reply);
  void answer(const Asked& asked, const ResponseCache::Found& found, CacheResult result);
  void pass_on(Asked asked);
  void keep(const ResponseCache::Key& key, std::optional<ResponseCache::Meaning> meaning,
            CapturedReply reply);
  // Empty: the client has left, or the request no longer waits.
  std::optional<Asked> take_waiting(net::ExchangeId client);
  void note_failed_embedding(const std::string& why);

  net::EventLoop& loop_;
  net::HttpServer& server_;
  RelayApi& relay_;
  const CacheConfig config_;
  const bool open_to_all_;
  ResponseCache cache_;
  const net::Url embedder_;
  const std::unique_ptr<net::OutboundClient> client_;
  std::unordered_map<net::ExchangeId, Asked> waiting_;
  size_t embeddings_in_flight_ = 0;
  WarnGate warning_{std::chrono::seconds(10)};
};

}  // namespace pdjob::router
