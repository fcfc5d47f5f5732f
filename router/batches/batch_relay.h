// BatchRelay: passes /v1/files and /v1/batches on to the job's process of the Batch API, as they
// come. A body of any size takes a bounded buffer: a slow process pauses the client, a slow client
// pauses the process. It knows nothing of files and batches. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "router/config/router_config.h"
#include "router/relay/reply_sink.h"

namespace pdjob::router {

class BatchRelay final : public net::HttpCallHandler {
 public:
  // Requires: `batches` names a process. `server` must outlive it.
  BatchRelay(net::Loop& loop, net::HttpServer& server, const BatchDoor& batches)
      : server_(server), batches_(batches), client_(net::HttpClient::create(loop)) {}

  static bool takes(std::string_view path);
  // Makes the body stream, if there is one. Requires: the client is known.
  void admit(net::HttpRequest& request) const;
  // Requires: admit() has seen the request.
  void route(net::ExchangeId client, const net::HttpRequest& request, const std::string& tenant,
             const std::string& request_id, std::unique_ptr<ReplySink> sink);
  // All three ignore clients that it does not serve.
  void on_body(net::ExchangeId client, std::string_view bytes, net::BodyPart part);
  void client_gone(net::ExchangeId client);
  void client_writable(net::ExchangeId client);

  size_t alive() const { return passing_.size(); }

 private:
  struct Passing {
    net::CallId call;
    std::unique_ptr<ReplySink> sink;
    std::string tenant;
    std::string request_id;
    bool reads = false;    // It asks for nothing to be done.
    bool chunked = false;  // The request's body.
    bool body_paused = false;
    bool begun = false;  // The client has the reply's head.
  };

  void on_head(net::CallId call, const net::HttpReplyHead& head) override;
  void on_body(net::CallId call, std::string_view raw) override;
  void on_end(net::CallId call) override;
  void on_error(net::CallId call, const Error& error) override;
  void on_writable(net::CallId call) override;
  // Null: the client has left.
  Passing* passing_of(net::CallId call);
  Passing take(net::CallId call);
  void forget(const std::string& tenant);

  net::HttpServer& server_;
  const BatchDoor batches_;
  const std::unique_ptr<net::HttpClient> client_;
  std::unordered_map<net::ExchangeId, Passing> passing_;
  std::unordered_map<net::CallId, net::ExchangeId> client_of_;
  std::unordered_map<std::string, size_t> of_tenant_;
};

}  // namespace pdjob::router
