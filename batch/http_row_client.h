// HttpRowClient: sends rows over pooled connections to one HTTP server: a job's router, or any
// server with OpenAI's API. Loop-bound.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "batch/row_client.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

class HttpRowClient final : public RowClient, net::HttpCallHandler {
 public:
  HttpRowClient(net::Loop& loop, const RowServer& server);

  void start(Attempt attempt, const Then& then) override;
  void cancel(AttemptId attempt) override;
  void on_told(OnTold told) override { told_ = std::move(told); }
  void count_workers(std::function<void(size_t)> then) override;

 private:
  struct Call {
    AttemptId attempt;
    Then then;
    RowResult result;
    bool asks = false;  // For tokens.
    bool chunked = false;
    net::ChunkDecoder chunks;
  };

  void on_interim(net::CallId id, const net::HttpReplyHead& head) override;
  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;
  void finish(net::CallId id, RowResult result);

  net::Loop& loop_;
  const RowServer server_;
  const std::unique_ptr<net::HttpClient> client_;
  OnTold told_;
  // Some proxies take an interim response for the reply (older versions of nginx do). Then tokens
  // are not asked for any more.
  bool may_ask_ = true;
  std::map<net::CallId, Call> calls_;
  std::map<AttemptId, net::CallId> call_of_;
};

}  // namespace pdjob::batch
