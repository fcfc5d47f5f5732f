// The router's Prometheus metrics. Loop-bound.
#pragma once

#include <array>
#include <map>
#include <string>

#include "common/metrics.h"
#include "common/time.h"
#include "common/two_windows.h"
#include "net/control/message.h"
#include "net/tls/server_tls.h"
#include "router/admission/admission.h"
#include "router/core/router.h"
#include "router/streams/stream_record.h"

namespace pdjob::router {

// How a request ended.
enum class Outcome { kOk, kClientError, kWorkerError, kRefused, kAborted, kClientGone };
const char* to_string(Outcome outcome);

// How the response cache handled a request. kBypass: it was not used.
enum class CacheResult { kHit, kSimilar, kMiss, kBypass };
const char* to_string(CacheResult result);

// The result of asking an engine for the tokens of a prompt.
enum class Tokenized { kOk, kFailed, kDropped };
const char* to_string(Tokenized result);
// The result of a callback. kForgotten: its answer was deleted first. kRefused: the job file does
// not list its receiver.
enum class CallbackOutcome { kDelivered, kRetried, kFailed, kForgotten, kRefused };
const char* to_string(CallbackOutcome outcome);

// What a second computation of an answer showed.
enum class AuditResult { kEqual, kTie, kDiffers, kFailed, kDropped };
const char* to_string(AuditResult result);

class RouterMetrics {
 public:
  RouterMetrics();

  void ended(Outcome outcome, Duration duration);
  // The phases of a request, recorded as each ends.
  void queued(Duration before_its_legs, Instant now) {
    queue_.observe(seconds(before_its_legs), now);
  }
  void prefilled(Duration leg, Instant now) { prefill_.observe(seconds(leg), now); }
  void kv_moved(double visible_seconds, Instant now) { kv_.observe(visible_seconds, now); }
  void first_byte(Duration since_arrival) { first_byte_seconds_.observe(seconds(since_arrival)); }
  void next_bytes(Duration since_last) { inter_token_seconds_.observe(seconds(since_last)); }
  void decoded(Duration since_first_byte) { decode_seconds_.observe(seconds(since_first_byte)); }
  void denied(DenialReason reason) { denials_[static_cast<size_t>(reason)].add(); }
  void retried(RetryReason reason) { retries_[static_cast<size_t>(reason)].add(); }
  void out_of_retries() { out_of_retries_.add(); }
  void hedged() { hedged_.add(); }
  void spans_dropped(uint64_t so_far) { spans_dropped_.set(static_cast<double>(so_far)); }
  void degraded() { degraded_.add(); }
  void bypassed(BypassReason reason) { bypassed_[static_cast<size_t>(reason)].add(); }
  void continued() { continued_.add(); }
  void cut(Obstacle obstacle) { cut_[static_cast<size_t>(obstacle)].add(); }
  void blamed(const std::string& tenant);  // Empty: no tenants.
  void pair_suspected() { pairs_suspected_.add(); }
  void cached(CacheResult result) { cached_[static_cast<size_t>(result)].add(); }
  void cache_holds(size_t entries, uint64_t bytes);
  void async_holds(size_t alive, size_t running);
  void kv_batch() { kv_batches_.add(); }
  void kv_gaps(uint64_t more) { kv_gaps_.add(static_cast<double>(more)); }
  void kv_replay() { kv_replays_.add(); }
  void tokenized(Tokenized result) { tokenized_[static_cast<size_t>(result)].add(); }
  void called_back(CallbackOutcome outcome) { callbacks_[static_cast<size_t>(outcome)].add(); }
  void callbacks_hold(size_t waiting, size_t running);
  // What became of handshakes so far, and until when the certificate serves (seconds since 1970).
  void tls(const net::HandshakeCounts& counts, int64_t not_after);
  void certificate_looked(net::ServerTls::Look look);
  void embedding_failed() { embedding_failures_.add(); }
  void audited(AuditResult result) { audits_[static_cast<size_t>(result)].add(); }
  void mismatched(const std::string& prefill, const std::string& decode);
  void picked(const std::string& worker, Stage stage);

  // The recent means of the first three.
  net::PhaseMeans phases(Instant now) const;
  // Returns Prometheus' text, with the current gauges.
  std::string text(const Router& router, Instant now);
  // The same, with the gauges as they were.
  std::string text() const { return metrics_.text(); }

 private:
  struct Phase {
    Histogram histogram;
    RecentMean mean;
    void observe(double seconds, Instant now) {
      histogram.observe(seconds);
      mean.add(seconds, 1, now);
    }
  };
  static constexpr size_t kOutcomes = 6;
  static constexpr size_t kRetryReasons = 4;
  static constexpr size_t kDenialReasons = 6;
  static constexpr size_t kCacheResults = 4;
  static constexpr size_t kTokenizedResults = 3;
  static constexpr size_t kCallbackOutcomes = 5;
  static constexpr size_t kAuditResults = 5;

  Metrics metrics_;
  std::vector<Counter> outcomes_;
  std::vector<Counter> retries_;
  std::vector<Counter> denials_;
  std::vector<Counter> cached_;
  std::vector<Counter> tokenized_;
  std::vector<Counter> callbacks_;
  std::vector<Counter> audits_;
  Counter out_of_retries_;
  Counter hedged_;
  Counter degraded_;
  std::vector<Counter> bypassed_;
  Counter continued_;
  std::vector<Counter> cut_;
  Counter pairs_suspected_;
  Counter embedding_failures_;
  Counter kv_batches_;
  Counter kv_gaps_;
  Counter kv_replays_;
  Phase queue_;
  Phase prefill_;
  Phase kv_;
  Histogram first_byte_seconds_;
  Histogram inter_token_seconds_;
  Histogram decode_seconds_;
  Histogram request_seconds_;
  Gauge alive_;
  Gauge queued_;
  Gauge queued_max_;
  Gauge spans_dropped_;
  Gauge pairs_avoided_;
  Gauge cache_entries_;
  Gauge cache_bytes_;
  Gauge kv_blocks_;
  Gauge async_alive_;
  Gauge async_running_;
  Gauge callbacks_waiting_;
  Gauge callbacks_running_;
  std::vector<Counter> handshakes_;
  net::HandshakeCounts handshakes_counted_;
  std::vector<Counter> certificates_;
  Gauge certificate_expires_;
  std::vector<Gauge> workers_;                                         // By Health.
  std::map<std::string, Counter> blamed_;                              // By tenant.
  std::map<std::pair<std::string, std::string>, Counter> mismatches_;  // By pair.
  std::map<std::pair<std::string, Stage>, Counter>
      picks_;  // Restarted workers keep their names, so there are few.
};

}  // namespace pdjob::router
