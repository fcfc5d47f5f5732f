// Prober: proves by a one-token request that two workers serve, and that KV moves between them. Our
// own router is asked to send it to just these two. A router of another make cannot be, so there
// the prober sends both legs itself, and then one more request through the router, to see that it
// serves, too. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/job.h"
#include "net/event_loop.h"
#include "net/http_client.h"

namespace pdjob::launcher {

struct ProberOptions {
  bool foreign_router = false;  // It is of another make.
  std::string key;              // Of the router's tenant for probes; empty: it has no tenants.
  // What a worker wants, by its name. For legs that go to it directly.
  std::function<std::string(const std::string& name)> worker_key_of;
  // Where a process serves, by its name.
  std::function<net::HttpAddress(const std::string& name)> address_of;
};

class Prober final : net::HttpCallHandler {
 public:
  // `report` gets ProbeSucceeded or ProbeFailed, once for each probe and never inside start().
  Prober(net::EventLoop& loop, ProberOptions options, std::function<void(Event)> report);

  void start(const Probe& probe);

 private:
  enum class Step { kPrefillLeg, kDecodeLeg, kRouter };

  struct Running {
    Probe probe;
    Step step = Step::kRouter;
    int status = 0;
    uint64_t kv_bytes = 0;
    std::string body;  // The beginning of it.
  };

  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;

  void call_router(Running running, const std::string& pins);
  void call_worker(Running running, const std::string& name, std::string_view kv_params);
  void call(Running running, const net::HttpAddress& to, const std::string& more_lines,
            std::string_view kv_params);
  void go_on(const Running& ended);
  void fail(const Running& ended, const std::string& reason);

  const ProberOptions options_;
  const std::function<void(Event)> report_;
  std::map<net::CallId, Running> running_;
  std::unique_ptr<net::HttpClient> client_;
};

}  // namespace pdjob::launcher
