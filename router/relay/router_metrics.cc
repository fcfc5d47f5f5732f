#include "router/relay/router_metrics.h"

#include <utility>

namespace pdjob::router {

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kClientError:
      return "client_error";
    case Outcome::kWorkerError:
      return "worker_error";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kAborted:
      return "aborted";
    case Outcome::kClientGone:
      return "client_gone";
  }
  return "unknown";
}

const char* to_string(CacheResult result) {
  switch (result) {
    case CacheResult::kHit:
      return "hit";
    case CacheResult::kSimilar:
      return "similar";
    case CacheResult::kMiss:
      return "miss";
    case CacheResult::kBypass:
      return "bypass";
  }
  return "unknown";
}

const char* to_string(Tokenized result) {
  switch (result) {
    case Tokenized::kOk:
      return "ok";
    case Tokenized::kFailed:
      return "failed";
    case Tokenized::kDropped:
      return "dropped";
  }
  return "unknown";
}

const char* to_string(CallbackOutcome outcome) {
  switch (outcome) {
    case CallbackOutcome::kDelivered:
      return "delivered";
    case CallbackOutcome::kRetried:
      return "retried";
    case CallbackOutcome::kFailed:
      return "failed";
    case CallbackOutcome::kForgotten:
      return "forgotten";
    case CallbackOutcome::kRefused:
      return "refused";
  }
  return "unknown";
}

const char* to_string(AuditResult result) {
  switch (result) {
    case AuditResult::kEqual:
      return "equal";
    case AuditResult::kTie:
      return "tie";
    case AuditResult::kDiffers:
      return "differs";
    case AuditResult::kFailed:
      return "failed";
    case AuditResult::kDropped:
      return "dropped";
  }
  return "failed";
}

RouterMetrics::RouterMetrics()
    : out_of_retries_(metrics_.counter("pdjob_router_out_of_retries_total",
                                       "Bad answers passed on because retry_budget was spent.")),
      hedged_(metrics_.counter("pdjob_router_hedged_total",
                               "Slow prefills that were tried at another pair, too.")),
      degraded_(metrics_.counter("pdjob_router_degraded_total",
                                 "Requests decoded without a prefill worker.")),
      continued_(metrics_.counter("pdjob_router_continuations_total",
                                  "Streams that broke off and went on at another worker.")),
      pairs_suspected_(metrics_.counter(
          "pdjob_router_pairs_suspected_total",
          "Pairs of workers that were found to be suspect, and reports of damaged KV.")),
      embedding_failures_(metrics_.counter("pdjob_router_cache_embedding_failures_total",
                                           "Prompts that got no vector in time.")),
      kv_batches_(metrics_.counter("pdjob_router_kv_event_batches_total",
                                   "What engines told of their prefix caches, by their steps.")),
      kv_gaps_(metrics_.counter("pdjob_router_kv_event_gaps_total",
                                "Times that some of it was missing, or could not be read.")),
      kv_replays_(metrics_.counter("pdjob_router_kv_event_replays_total",
                                   "Times that an engine was asked for what it told before.")),
      queue_{metrics_.histogram("pdjob_router_queue_seconds", "From arrival to the first leg.",
                                latency_bounds()),
             {}},
      prefill_{metrics_.histogram("pdjob_router_prefill_seconds",
                                  "Of a prefill leg, from sending it to its whole reply.",
                                  latency_bounds()),
               {}},
      kv_{metrics_.histogram("pdjob_router_kv_seconds",
                             "What a decode worker waited for KV when its prompt was done. Of an "
                             "engine of another make, and streams only: from the prefill leg's "
                             "reply to the first byte.",
                             latency_bounds()),
          {}},
      first_byte_seconds_(metrics_.histogram("pdjob_router_first_byte_seconds",
                                             "From arrival to the first byte of the reply's body.",
                                             latency_bounds())),
      inter_token_seconds_(metrics_.histogram("pdjob_router_inter_token_seconds",
                                              "Between two pieces of a stream, as they came.",
                                              latency_bounds())),
      decode_seconds_(metrics_.histogram("pdjob_router_decode_seconds",
                                         "From the first byte to the end, of completed requests.",
                                         latency_bounds())),
      request_seconds_(metrics_.histogram("pdjob_router_request_seconds",
                                          "From arrival to the end, of completed requests.",
                                          latency_bounds())),
      alive_(metrics_.gauge("pdjob_router_requests_alive", "Requests that have not ended.")),
      queued_(metrics_.gauge("pdjob_router_requests_queued",
                             "Requests that wait for a usable pair of workers.")),
      queued_max_(metrics_.gauge("pdjob_router_requests_queued_max",
                                 "Requests that may wait at once: the job file's queue_max.")),
      spans_dropped_(metrics_.gauge("pdjob_router_spans_dropped",
                                    "Spans that the collector of traces did not take, so far.")),
      pairs_avoided_(metrics_.gauge("pdjob_router_pairs_avoided",
                                    "Pairs that are avoided, for KV came damaged between them.")),
      cache_entries_(metrics_.gauge("pdjob_router_cache_entries", "Answers that are kept.")),
      cache_bytes_(metrics_.gauge("pdjob_router_cache_bytes", "Memory of answers.")),
      kv_blocks_(metrics_.gauge("pdjob_router_kv_blocks",
                                "Blocks of tokens that engines have in their prefix caches.")),
      async_alive_(metrics_.gauge("pdjob_router_async_alive",
                                  "Requests without a connection that have no answer yet.")),
      async_running_(
          metrics_.gauge("pdjob_router_async_running", "Of these, those that workers have.")),
      callbacks_waiting_(metrics_.gauge("pdjob_router_callbacks_waiting",
                                        "Answers whose clients are to be called, or again.")),
      callbacks_running_(
          metrics_.gauge("pdjob_router_callbacks_running", "Clients that are being called.")),
      certificate_expires_(
          metrics_.gauge("pdjob_router_certificate_expires_seconds",
                         "When the certificate for HTTPS expires, in seconds since 1970. 0: there "
                         "is none.")) {
  for (size_t i = 0; i < kOutcomes; ++i) {
    outcomes_.push_back(metrics_.counter("pdjob_router_requests_total",
                                         "Requests by how they ended.",
                                         {{"outcome", to_string(static_cast<Outcome>(i))}}));
  }
  for (size_t i = 0; i < kAuditResults; ++i) {
    audits_.push_back(metrics_.counter("pdjob_router_audits_total",
                                       "Answers that were computed again without a hand-over, by "
                                       "what that showed.",
                                       {{"result", to_string(static_cast<AuditResult>(i))}}));
  }
  for (uint8_t i = 0; i < kObstacles; ++i) {
    cut_.push_back(
        metrics_.counter("pdjob_router_streams_cut_total",
                         "Streams that broke off and could not go on, by what was in "
                         "the way.",
                         {{"reason", std::string(to_string(static_cast<Obstacle>(i)))}}));
  }
  for (const BypassReason reason :
       {BypassReason::kSharedCores, BypassReason::kShort, BypassReason::kWaits, BypassReason::kBusy,
        BypassReason::kPromptOnly}) {
    bypassed_.push_back(metrics_.counter("pdjob_router_bypassed_total",
                                         "Requests that one worker served alone, because a "
                                         "hand-over would not have paid: a decode worker, or if "
                                         "that was busy, or the request reads only its prompt, a "
                                         "prefill worker.",
                                         {{"reason", to_string(reason)}}));
  }
  for (size_t i = 0; i < kRetryReasons; ++i) {
    retries_.push_back(metrics_.counter("pdjob_router_retries_total",
                                        "Pairs given up before the first byte.",
                                        {{"reason", to_string(static_cast<RetryReason>(i))}}));
  }
  for (size_t i = 0; i < kDenialReasons; ++i) {
    denials_.push_back(metrics_.counter("pdjob_router_denials_total",
                                        "Requests that were not let in.",
                                        {{"reason", to_string(static_cast<DenialReason>(i))}}));
  }
  for (size_t i = 0; i < kCacheResults; ++i) {
    cached_.push_back(metrics_.counter("pdjob_router_cache_total",
                                       "Generations by what the response cache had for them.",
                                       {{"result", to_string(static_cast<CacheResult>(i))}}));
  }
  for (size_t i = 0; i < kTokenizedResults; ++i) {
    tokenized_.push_back(metrics_.counter("pdjob_router_tokenize_total",
                                          "Prompts whose tokens engines were asked for.",
                                          {{"result", to_string(static_cast<Tokenized>(i))}}));
  }
  for (size_t i = 0; i < kCallbackOutcomes; ++i) {
    callbacks_.push_back(metrics_.counter(
        "pdjob_router_callbacks_total", "Calls to clients of asynchronous requests.",
        {{"outcome", to_string(static_cast<CallbackOutcome>(i))}}));
  }
  for (const char* const outcome : {"done", "failed", "timed_out", "evicted", "plain_http"}) {
    handshakes_.push_back(metrics_.counter("pdjob_router_tls_handshakes_total",
                                           "Handshakes of clients by how they ended.",
                                           {{"outcome", outcome}}));
  }
  for (const char* const outcome : {"taken", "refused"}) {
    certificates_.push_back(metrics_.counter("pdjob_router_certificates_total",
                                             "Certificates that came while the router ran. A "
                                             "refused one changes nothing; the log has the reason.",
                                             {{"outcome", outcome}}));
  }
  for (const Health health : {Health::kHealthy, Health::kSuspect, Health::kHalfOpen}) {
    workers_.push_back(
        metrics_.gauge("pdjob_router_workers", "Known workers.", {{"health", to_string(health)}}));
  }
}

void RouterMetrics::ended(Outcome outcome, Duration duration) {
  outcomes_[static_cast<size_t>(outcome)].add();
  if (outcome == Outcome::kOk) {
    request_seconds_.observe(seconds(duration));
  }
}

void RouterMetrics::cache_holds(size_t entries, uint64_t bytes) {
  cache_entries_.set(static_cast<double>(entries));
  cache_bytes_.set(static_cast<double>(bytes));
}

void RouterMetrics::async_holds(size_t alive, size_t running) {
  async_alive_.set(static_cast<double>(alive));
  async_running_.set(static_cast<double>(running));
}

void RouterMetrics::callbacks_hold(size_t waiting, size_t running) {
  callbacks_waiting_.set(static_cast<double>(waiting));
  callbacks_running_.set(static_cast<double>(running));
}

void RouterMetrics::tls(const net::HandshakeCounts& counts, int64_t not_after) {
  const auto add = [this](size_t outcome, uint64_t now, uint64_t& counted) {
    handshakes_[outcome].add(static_cast<double>(now - std::exchange(counted, now)));
  };
  add(0, counts.done, handshakes_counted_.done);
  add(1, counts.failed, handshakes_counted_.failed);
  add(2, counts.timed_out, handshakes_counted_.timed_out);
  add(3, counts.evicted, handshakes_counted_.evicted);
  add(4, counts.plain, handshakes_counted_.plain);
  certificate_expires_.set(static_cast<double>(not_after));
}

void RouterMetrics::certificate_looked(net::ServerTls::Look look) {
  if (look != net::ServerTls::Look::kSame) {
    certificates_[look == net::ServerTls::Look::kRefused ? 1 : 0].add();
  }
}

void RouterMetrics::picked(const std::string& worker, Stage stage) {
  auto row = picks_.find({worker, stage});
  if (row == picks_.end()) {
    const char* role = stage == Stage::kPrefill ? "prefill" : "decode";
    const Counter counter =
        metrics_.counter("pdjob_router_picks_total", "Legs sent to each worker.",
                         {{"worker", worker}, {"stage", role}});
    row = picks_.emplace(std::pair(worker, stage), counter).first;
  }
  row->second.add();
}

void RouterMetrics::mismatched(const std::string& prefill, const std::string& decode) {
  auto row = mismatches_.find({prefill, decode});
  if (row == mismatches_.end()) {
    const Counter counter = metrics_.counter(
        "pdjob_router_audit_mismatches_total",
        "Answers that came out otherwise without the hand-over, by the pair that made them.",
        {{"prefill", prefill}, {"decode", decode}});
    row = mismatches_.emplace(std::pair(prefill, decode), counter).first;
  }
  row->second.add();
}

void RouterMetrics::blamed(const std::string& tenant) {
  auto row = blamed_.find(tenant);
  if (row == blamed_.end()) {
    const Counter counter = metrics_.counter(
        "pdjob_router_requests_blamed_total",
        "Requests that are not given on, since workers crashed or hung while they ran them.",
        {{"tenant", tenant}});
    row = blamed_.emplace(tenant, counter).first;
  }
  row->second.add();
}

net::PhaseMeans RouterMetrics::phases(Instant now) const {
  return {.queue_us = queue_.mean.us(now),
          .prefill_us = prefill_.mean.us(now),
          .kv_us = kv_.mean.us(now)};
}

std::string RouterMetrics::text(const Router& router, Instant now) {
  alive_.set(static_cast<double>(router.requests_alive()));
  queued_.set(static_cast<double>(router.requests_queued()));
  queued_max_.set(router.queue_max());
  pairs_avoided_.set(static_cast<double>(router.suspicions().pairs(now).size()));
  kv_blocks_.set(router.kv() == nullptr ? 0 : router.kv()->size());
  std::array<size_t, 3> counts{};
  for (const auto& [id, worker] : router.workers().all()) {
    counts[static_cast<size_t>(worker.health(now))] += 1;
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    workers_[i].set(static_cast<double>(counts[i]));
  }
  return metrics_.text();
}

}  // namespace pdjob::router
