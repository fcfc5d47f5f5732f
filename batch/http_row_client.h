// HttpRowClient: sends rows over pooled connections to one HTTP server: a job's router, or any
// server with OpenAI's API. Loop-bound.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "batch/row_client.h"
#include "common/result.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"
#include "net/outbound/url.h"

namespace pdjob::batch {

struct RowServer {
  net::Url url;     // A path such as /v1 is not repeated in front of targets.
  std::string key;  // Sent as a bearer token; empty: none.
  Duration row_timeout = std::chrono::minutes(10);  // Of one attempt.
  std::string header_lines = {};                    // More of them, each with its end.
};

// kUnsupported: https.
Result<RowServer> parse_row_server(const std::string& url);

class HttpRowClient final : public RowClient, net::HttpCallHandler {
 public:
  HttpRowClient(net::Loop& loop, const RowServer& server);

  void start(Attempt attempt, const Then& then) override;
  void cancel(AttemptId attempt) override;
  void count_workers(std::function<void(size_t)> then) override;

 private:
  struct Call {
    AttemptId attempt;
    Then then;
    RowResult result;
    bool chunked = false;
    net::ChunkDecoder chunks;
  };

  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;
  void finish(net::CallId id, RowResult result);

  net::Loop& loop_;
  const RowServer server_;
  const std::unique_ptr<net::HttpClient> client_;
  std::map<net::CallId, Call> calls_;
  std::map<AttemptId, net::CallId> call_of_;
};

// Returns the row's outcome after an answer with this status. Pure.
Outcome outcome_of_status(int status);

}  // namespace pdjob::batch
