// Prober: proves with a one-token request that two workers serve and that KV moves between them.
// pdjob's router accepts the two workers with the request. For a probe of two workers alone, the
// prober sends both legs itself. In a probe of a router alone, the router chooses the workers.
// Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/job.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"
#include "router/core/kv_words.h"

namespace pdjob::launcher {

struct ProberOptions {
  // The key by which a router knows probes; empty: it knows none.
  std::string key;
  // Returns the key of a worker, by its name; for legs sent directly to a worker.
  std::function<std::string(const std::string& name)> worker_key_of;
  // Returns the address of a process, by its name.
  std::function<net::HttpAddress(const std::string& name)> address_of;
  // Returns how much KV an engine of another make says that it has received, by its worker's name;
  // nothing: it is pdjob's own engine, whose replies say it.
  std::function<std::optional<uint64_t>(const std::string& name)> kv_received_by;
  // Returns what a worker registered, by its name.
  std::function<net::WorkerEntry(const std::string& name)> entry_of;
};

class Prober final : net::HttpCallHandler {
 public:
  // Calls `report` with ProbeSucceeded or ProbeFailed, once per probe, never inside start().
  Prober(net::Loop& loop, ProberOptions options, std::function<void(Event)> report);
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  void start(const Probe& probe);

 private:
  // kBeside: a prefill leg whose decode leg runs at the same time, and tells the outcome.
  enum class Step { kPrefillLeg, kBeside, kDecodeLeg, kRouter };

  struct Running {
    Probe probe;
    Step step = Step::kRouter;
    int status = 0;
    uint64_t kv_bytes = 0;
    std::string body;  // Only its beginning.
    // The KV that the decode engine had received before. Empty: its reply will tell the amount.
    std::optional<uint64_t> received_before;
  };

  struct Counted {
    uint64_t probe = 0;
    std::string decode;
    uint64_t before = 0;
    Instant deadline{};
  };

  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;

  void call_router(Running running);
  // Both legs at once.
  void call_both(const Running& running, const net::WorkerEntry& prefill);
  void call_worker(Running running, const std::string& name, const router::KvWords& words);
  void call(Running running, const net::HttpAddress& to, const std::string& more_lines,
            const router::KvWords& words);
  void go_on(const Running& ended);
  void look_at_counts();
  void fail(const Running& ended, const std::string& reason);

  const ProberOptions options_;
  const std::function<void(Event)> report_;
  net::Loop& loop_;
  std::map<net::CallId, Running> running_;
  // Probes that an engine of another make has answered. Its count of KV comes with a heartbeat.
  std::vector<Counted> counted_;
  net::TimerId look_;
  std::unique_ptr<net::HttpClient> client_;
};

}  // namespace pdjob::launcher
