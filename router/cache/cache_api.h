// CacheApi: the response cache in front of the relay. It answers a request from the cache if it
// can. Any other request goes to the workers, and the cache gets a copy of the answer (CacheSink).
// With similarity search, a request first waits briefly for its vector; after the timeout it goes
// on without one. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/log.h"
#include "net/loop/loop.h"
#include "net/outbound/outbound_client.h"
#include "router/cache/request_digest.h"
#include "router/cache/response_cache.h"
#include "router/relay/relay_api.h"
#include "router/relay/reply_capture.h"

namespace pdjob::router {

class CacheApi {
 public:
  // `client` reaches the embedder. Requires: `config` has a cache.
  CacheApi(net::Loop& loop, RelayApi& relay, const RouterConfig& config,
           std::unique_ptr<net::OutboundClient> client);
  ~CacheApi();
  CacheApi(const CacheApi&) = delete;
  CacheApi& operator=(const CacheApi&) = delete;

  // Takes over a request that generates, as RelayApi::route() does.
  void route(RequestId id, net::HttpRequest& request, RequestBody body,
             std::unique_ptr<ReplySink> sink);
  // Ignores requests that do not wait here.
  void client_left(RequestId id);
  // Sends every request that waits for a vector to the workers.
  void let_all_go_on();

  const ResponseCache& cache() const { return cache_; }

 private:
  // A request on its way through the cache.
  struct Asked {
    RequestId id;
    std::unique_ptr<ReplySink> sink;
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
  void take_vector(RequestId id, const Result<net::OutboundReply>& reply);
  void answer(const Asked& asked, const ResponseCache::Found& found, CacheResult result);
  void pass_on(Asked asked);
  void keep(const ResponseCache::Key& key, std::optional<ResponseCache::Meaning> meaning,
            CapturedReply reply);
  // Empty: the client has left, or the request no longer waits.
  std::optional<Asked> take_waiting(RequestId id);
  void note_failed_embedding(const std::string& why);

  net::Loop& loop_;
  RelayApi& relay_;
  const CacheConfig config_;
  const bool open_to_all_;
  ResponseCache cache_;
  const net::Url embedder_;
  const std::unique_ptr<net::OutboundClient> client_;
  std::unordered_map<RequestId, Asked> waiting_;
  size_t embeddings_in_flight_ = 0;
  WarnGate warning_{std::chrono::seconds(10)};
};

}  // namespace pdjob::router
