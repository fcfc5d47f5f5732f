// RequestWatch sees where the time of requests goes, and tells it: metrics, the launcher's timings,
// traces and log lines. It changes nothing. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/id.h"
#include "common/log.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "net/tls/server_tls.h"
#include "router/core/router.h"
#include "router/relay/request_timings.h"
#include "router/relay/router_metrics.h"
#include "router/relay/tracer.h"

namespace pdjob::router {

// The times of one request, as they become known. Value.
struct RequestTrail {
  RequestMoments moments;
  Instant last_bytes{};
  RequestTiming timing;        // Filled in as it becomes known. Its status: of the relayed reply.
  bool timed = false;          // Its timing is kept: it generates, and is no probe.
  bool kv_known = false;       // Its wait for KV is among the metrics.
  bool background = false;     // RequestFacts::background: its times say nothing of the others'.
  std::unique_ptr<Span> span;  // If it is traced.
};

class RequestWatch {
 public:
  // `tracer` may be null.
  RequestWatch(net::Loop& loop, const Router& core, std::unique_ptr<Tracer> tracer)
      : loop_(loop), core_(core), tracer_(std::move(tracer)) {}

  RouterMetrics& metrics() { return metrics_; }
  std::string metrics_text();
  std::string timings_json() const { return timings_.json(loop_.now(), loop_.unix_seconds()); }
  // Its handshakes are among the metrics. It outlives this.
  void count_handshakes(net::ServerTls& tls) { tls_ = &tls; }

  RequestTrail begin(const net::HttpRequest& request);
  // Null: the request is not traced.
  std::unique_ptr<Span> begin_leg(RequestTrail& trail, const StartLeg& leg);
  void end_leg(std::unique_ptr<Span> span, std::string_view error);
  void prefilled(RequestTrail& trail);
  // The head of the relayed reply is there.
  void answered(RequestTrail& trail, int status, std::string_view kv_visible_seconds);
  // Body bytes of the reply pass; `of_stream`: a token or some.
  void passed(RequestTrail& trail, bool of_stream);
  // The reply is complete.
  Outcome completed(const RequestTrail& trail);
  void ended(RequestId id, RequestTrail trail, Outcome outcome, std::string request_id,
             const std::string& tenant);

  // The worker's name; `gone` if it has left.
  std::string_view name_of(WorkerId worker, std::string_view gone = {}) const;
  // `request`: as the log names it.
  void note(const PairSuspected& effect);
  void note(const WorkerAvoided& effect);
  void note(const Degraded& effect);
  void note(const Retried& effect, const std::string& request);
  void note(const OutOfRetries& effect, const std::string& request);
  void note(const Hedged& effect, const std::string& request);
  void note(const Continued& effect, const std::string& request);
  void note(const Blamed& effect, const std::string& request, const std::string& tenant,
            const std::string& digest);

 private:
  void note_kv(RequestTrail& trail);

  net::Loop& loop_;
  const Router& core_;
  RouterMetrics metrics_;
  RequestTimings timings_;
  const std::unique_ptr<Tracer> tracer_;
  net::ServerTls* tls_ = nullptr;
  WarnGate degraded_warning_{std::chrono::seconds(10)};
  WarnGate avoided_warning_{std::chrono::seconds(1)};
};

}  // namespace pdjob::router
