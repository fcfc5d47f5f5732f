// ProbeClient: sends the requests of one measurement at the same time, and notes when each token of
// their streams comes. Loop-bound; ask() and get() run the loop until they are done.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/capacity/probe_request.h"
#include "net/http/http_client.h"
#include "net/http/http_parser.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {

// An engine's server: a worker, or the router of a job.
struct ProbeTarget {
  net::HttpAddress address;
  std::string path;  // In front of every route; mostly empty.
  std::string key;   // Empty: it needs none.
};

struct ProbeAsk {
  ProbeTarget to;
  ProbeRequest request;
  bool late = false;  // It starts when all others have output.
};

struct ProbeReply {
  int status = 0;
  std::string refusal;  // Not empty: it was not answered.
  std::string body;     // If it was no stream.
  Instant sent{};
  std::vector<Instant> tokens;  // When each came.
  std::optional<ProbeUsage> usage;
  double kv_seconds = 0;  // As a pdjob worker says; 0: it does not.
};

class ProbeClient final : net::HttpCallHandler {
 public:
  explicit ProbeClient(net::EventLoop& loop);
  ~ProbeClient();
  ProbeClient(const ProbeClient&) = delete;
  ProbeClient& operator=(const ProbeClient&) = delete;

  // kTimeout: not all have ended at the deadline. kCancelled: stop(). kUnavailable: a server cannot
  // be reached. A refusal is a reply.
  Result<std::vector<ProbeReply>> ask(std::vector<ProbeAsk> asks, Instant deadline);
  Result<net::HttpReply> get(const ProbeTarget& from, const std::string& route);
  // Ends what runs, and all that follows.
  void stop();

 private:
  struct Call {
    size_t at = 0;  // In replies_.
    bool stream = false;
    bool chunked = false;
    net::ChunkDecoder chunks;
    ProbeEvents events;
    std::string body;
  };

  void start(size_t at);
  void start_late();
  void end(net::CallId id);
  void fail(Error error);
  void cancel_all();

  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;

  net::EventLoop& loop_;
  const std::unique_ptr<net::HttpClient> client_;
  std::vector<ProbeAsk> asks_;
  std::vector<ProbeReply> replies_;
  std::map<net::CallId, Call> calls_;
  size_t late_left_ = 0;
  std::optional<Error> failure_;
  bool stopped_ = false;
};

}  // namespace pdjob::launcher
