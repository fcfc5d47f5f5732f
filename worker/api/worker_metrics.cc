#include "worker/api/worker_metrics.h"

namespace pdjob::worker {
namespace {

std::vector<double> transfer_bounds() {
  return {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
}

}  // namespace

WorkerMetrics::WorkerMetrics(Metrics& metrics)
    : prompt_tokens(
          metrics.counter("pdjob_prompt_tokens_total", "Prompt tokens of finished requests.")),
      generation_tokens(metrics.counter("pdjob_generation_tokens_total", "Tokens generated.")),
      requests_succeeded(metrics.counter("pdjob_requests_total", "Requests, by outcome.",
                                         {{"outcome", "completed"}})),
      requests_failed(metrics.counter("pdjob_requests_total", "Requests, by outcome.",
                                      {{"outcome", "failed"}})),
      requests_cancelled(metrics.counter("pdjob_requests_total", "Requests, by outcome.",
                                         {{"outcome", "cancelled"}})),
      prefix_cache_queries(metrics.counter("pdjob_prefix_cache_queries_total",
                                           "Tokens of the prompts that were computed here.")),
      prefix_cache_hits(metrics.counter("pdjob_prefix_cache_hits_total",
                                        "Those of them whose KV was there already.")),
      store_queries(metrics.counter("pdjob_kv_store_queries_total",
                                    "Tokens whose KV the store of the node was asked for.")),
      store_hits(metrics.counter("pdjob_kv_store_hits_total", "Those of them whose KV it gave.")),
      store_given(metrics.counter("pdjob_kv_store_given_total",
                                  "Tokens whose KV the store took from this worker.")),
      store_failures(metrics.counter("pdjob_kv_store_failures_total",
                                     "Times that the store failed or was late, and was left alone "
                                     "for a while.")),
      kv_bytes_received(metrics.counter("pdjob_kv_received_bytes_total",
                                        "KV bytes fetched from prefill workers.")),
      kv_transfers_received(
          metrics.counter("pdjob_kv_received_total", "Prompts whose KV was fetched.")),
      kv_transfer_seconds(metrics.histogram(
          "pdjob_kv_transfer_seconds", "From the grant of the rows to COMMIT.", latency_bounds())),
      kv_visible_seconds(metrics.histogram("pdjob_kv_visible_seconds",
                                           "From the last row being computed to COMMIT seen by the "
                                           "decode worker: what a request waits for.",
                                           transfer_bounds())),
      time_to_first_token(metrics.histogram("pdjob_time_to_first_token_seconds",
                                            "From the request's arrival at this worker.",
                                            latency_bounds())),
      inter_token_latency(metrics.histogram("pdjob_inter_token_latency_seconds",
                                            "Between two tokens of a request.", latency_bounds())),
      requests_running(metrics.gauge("pdjob_requests_running", "Requests that hold sequences.")),
      requests_waiting(
          metrics.gauge("pdjob_requests_waiting", "Requests that wait for sequences.")),
      background_running(
          metrics.gauge("pdjob_background_requests_running",
                        "Those of them in the background, which take what others leave.")),
      background_waiting(
          metrics.gauge("pdjob_background_requests_waiting", "Those of them in the background.")),
      ways_given(metrics.counter(
          "pdjob_background_ways_given_total",
          "Times that a request in the background gave its sequence to another one. Its tokens "
          "are computed again.")),
      kv_rows_used(metrics.gauge("pdjob_kv_rows_used", "KV rows (tokens) in use.")),
      kv_rows_max(metrics.gauge("pdjob_kv_rows_max", "KV rows (tokens) there are.")),
      borrowed_steps(metrics.counter("pdjob_borrowed_steps_total",
                                     "Engine steps with threads that idle engines lent.")),
      lending_rests(metrics.counter("pdjob_lending_rests_total",
                                    "Times that borrowing threads was given up for a while, "
                                    "because a step was slower with them.")),
      lending_rests_now(metrics.gauge("pdjob_lending_rests",
                                      "1: the last step could have borrowed threads, and borrowed "
                                      "none, because they do not pay.")) {}

}  // namespace pdjob::worker
