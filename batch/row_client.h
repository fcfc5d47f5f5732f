// RowClient: sends one attempt of a row to whatever serves it: HttpRowClient by http,
// OutboundRowClient by https. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "batch/core/ledger.h"
#include "common/time.h"
#include "net/loop/event_loop.h"
#include "net/outbound/outbound_client.h"
#include "net/outbound/url.h"

namespace pdjob::batch {

// How an attempt ended.
struct RowResult {
  Outcome outcome = Outcome::kBroken;
  int status = 0;  // 0: there was no reply.
  std::string body;
  std::string stages;  // A JSON object: what stages said of the row; empty: nothing.
  std::string request_id;
  Duration retry_after{};
  std::string cause;     // Of a failure, one word: "timeout", "500".
  std::string message;   // For people.
  std::string hopeless;  // Not empty: why every other row would fail like this.

  bool refuses_key() const { return status == 401 || status == 403; }
};

class RowClient;

// The server that answers rows.
struct RowServer {
  net::Url url;                         // A path such as /v1 is not repeated in front of targets.
  std::string key;                      // Sent as a bearer token; empty: none.
  net::Peer peer = net::Peer::kProved;  // https.
  std::string ca_file;  // https: certificates of the authorities that are trusted; empty: the
                        // system's.
  Duration row_timeout = std::chrono::minutes(10);  // Of one attempt.
  std::string header_lines = {};                    // More of them, each with its end.
  // Makes who speaks to it, for those that have only a Loop; empty: HttpRowClient, by http.
  std::function<std::unique_ptr<RowClient>(const RowServer&)> make_client = {};
};

// The tokens of a row so far, as values of the request's members pdjob_resume, pdjob_resume_weights
// and pdjob_resume_model. Empty: it has none.
struct GoesOn {
  std::string tokens;
  std::string weights;
  std::string model;
};

class RowClient {
 public:
  using Then = std::function<void(AttemptId, RowResult)>;

  struct Attempt {
    AttemptId id;
    std::string target;      // "/v1/completions".
    std::string request_id;  // Sent along.
    std::string body;
    GoesOn goes_on = {};
    uint32_t tell_every = 0;     // The server may tell so many tokens at once; 0: none.
    std::string custom_id = {};  // Of the row, for stages.
  };
  using OnTold = std::function<void(AttemptId, std::string_view note)>;

  virtual ~RowClient() = default;
  // Calls `then` once, after it has returned; not after cancel().
  virtual void start(Attempt attempt, const Then& then) = 0;
  virtual void cancel(AttemptId attempt) = 0;
  // Sets who gets the notes (told_tokens.h) of attempts under way. Most servers tell none.
  virtual void on_told(OnTold /*told*/) {}
  // How many workers serve, if the server tells; 0: it does not.
  virtual void count_workers(std::function<void(size_t)> then) = 0;
};

// "http://host:port/v1", "https://host/v1"; "host:port" means http.
Result<RowServer> parse_row_server(const std::string& url);
std::unique_ptr<RowClient> make_row_client(net::EventLoop& loop, const RowServer& server);

}  // namespace pdjob::batch
