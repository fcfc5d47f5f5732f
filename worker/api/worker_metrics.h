// The metrics of an engine worker. They have vLLM's names where vLLM has the same metric, so that
// vLLM's dashboards work. Thread-safe.
#pragma once

#include "common/metrics.h"

namespace pdjob::worker {

struct WorkerMetrics {
  explicit WorkerMetrics(Metrics& metrics);

  Counter prompt_tokens;
  Counter generation_tokens;
  Counter requests_succeeded;
  Counter requests_failed;
  Counter requests_cancelled;
  Counter prefix_cache_queries;
  Counter prefix_cache_hits;
  Counter store_queries;
  Counter store_hits;
  Counter store_given;
  Counter store_failures;
  Counter kv_bytes_received;
  Counter kv_transfers_received;
  Histogram kv_transfer_seconds;
  Histogram kv_visible_seconds;
  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Gauge requests_running;
  Gauge requests_waiting;
  Gauge background_running;
  Gauge background_waiting;
  Counter ways_given;
  Gauge kv_rows_used;
  Gauge kv_rows_max;
  Counter borrowed_steps;
  Counter lending_rests;
  Gauge lending_rests_now;
};

}  // namespace pdjob::worker
