// Prober: sends one-token requests through the router, pinned to given workers, and reports whether
// an answer came and how much KV moved for it. Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/job.h"
#include "net/event_loop.h"
#include "net/http_client.h"

namespace pdjob::launcher {

class Prober final : net::HttpCallHandler {
 public:
  // `report` gets ProbeSucceeded or ProbeFailed, once for each probe and never inside start().
  Prober(net::EventLoop& loop, net::HttpAddress router, std::string model,
         std::function<void(Event)> report);

  void start(const Probe& probe);

 private:
  struct Running {
    uint64_t probe = 0;
    int status = 0;
    uint64_t kv_bytes = 0;
    std::string body;  // The beginning of it, for the error message.
  };

  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;

  const net::HttpAddress router_;
  const std::string model_;
  const std::function<void(Event)> report_;
  std::map<net::CallId, Running> running_;
  std::unique_ptr<net::HttpClient> client_;
};

}  // namespace pdjob::launcher
