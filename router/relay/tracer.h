// Tracer decides which requests are traced, and sends their spans to an OpenTelemetry collector: in
// batches, one at a time, without delaying a request. Spans that the collector refuses are dropped,
// and counted. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/log.h"
#include "common/random.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "net/outbound/outbound_client.h"
#include "router/config/tracing_config.h"
#include "router/relay/trace.h"

namespace pdjob::router {

class Tracer {
 public:
  static constexpr size_t kSpansMax = 8192;  // Waiting; more are dropped.
  static constexpr size_t kBatchMax = 512;
  static constexpr Duration kInterval = std::chrono::seconds(1);

  Tracer(net::Loop& loop, const TracingConfig& config, std::unique_ptr<net::OutboundClient> client);
  ~Tracer() { loop_.cancel(timer_); }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Begins the span of an arriving request; null: it is not traced. If the client sent a
  // traceparent, that decides.
  std::unique_ptr<Span> begin(const net::HttpRequest& request);
  // Begins the span of a leg.
  std::unique_ptr<Span> begin_child(const Span& parent, std::string name);
  void end(std::unique_ptr<Span> span);

  uint64_t spans_dropped() const { return dropped_; }

 private:
  void export_some();
  void exported(size_t spans, const Result<net::OutboundReply>& reply);

  net::Loop& loop_;
  net::Url collector_;
  const double ratio_;
  const int64_t unix_offset_;
  const std::unique_ptr<net::OutboundClient> client_;
  Random random_;               // Selects the traced requests; not used for ids.
  const std::string instance_;  // Identifies one incarnation of a router.
  std::vector<Span> waiting_;
  bool exporting_ = false;
  uint64_t dropped_ = 0;
  WarnGate warning_{std::chrono::minutes(1)};
  net::TimerId timer_;
};

}  // namespace pdjob::router
