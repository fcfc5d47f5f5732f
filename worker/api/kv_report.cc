#include "worker/api/kv_report.h"

#include "common/json/json_writer.h"
#include "common/metrics.h"

namespace pdjob::worker {
namespace {

using kvtransfer::FailureCause;
using kvtransfer::PairStats;
using kvtransfer::StallCause;

Labels labels_of(const PairStats& pair) {
  return {{"peer", pair.peer},
          {"transport", to_string(pair.transport)},
          {"direction", to_string(pair.direction)}};
}

Labels with_cause(Labels labels, const char* cause) {
  labels.emplace_back("cause", cause);
  return labels;
}

void add_pair(Metrics& metrics, const PairStats& pair) {
  const Labels labels = labels_of(pair);
  const auto count = [&](const char* name, const char* help, uint64_t value) {
    metrics.counter(name, help, labels).add(static_cast<double>(value));
  };
  const auto gauge = [&](const char* name, const char* help, uint64_t value) {
    metrics.gauge(name, help, labels).set(static_cast<double>(value));
  };
  count("pdjob_kv_link_bytes_total", "KV bytes of complete transfers with one peer.", pair.bytes);
  count("pdjob_kv_link_transfers_total", "Complete transfers.", pair.transfers);
  metrics
      .counter("pdjob_kv_link_transfer_seconds_total",
               "From grant to COMMIT, summed over complete transfers.", labels)
      .add(seconds(pair.busy));
  count("pdjob_kv_link_opens_total", "Links opened to the peer; beyond one: retries.",
        pair.links_opened);
  count("pdjob_kv_link_digest_errors_total", "Transfers whose rows did not match their digest.",
        pair.digest_errors());
  for (size_t i = 0; i < kvtransfer::kFailureCauses; ++i) {
    metrics
        .counter("pdjob_kv_link_failures_total", "Failed transfers, by cause.",
                 with_cause(labels, to_string(static_cast<FailureCause>(i))))
        .add(static_cast<double>(pair.failures[i]));
  }
  for (size_t i = 0; i < kvtransfer::kStallCauses; ++i) {
    metrics
        .counter("pdjob_kv_link_stalls_total", "What stopped moving and was given up, by cause.",
                 with_cause(labels, to_string(static_cast<StallCause>(i))))
        .add(static_cast<double>(pair.stalls[i]));
  }
  gauge("pdjob_kv_link_up", "1 while a link is open.", pair.state == PairStats::State::kOpen);
  gauge("pdjob_kv_link_epoch", "Of the latest link; grows with each that the receiver opens.",
        pair.epoch);
  gauge("pdjob_kv_link_transfers_alive", "Transfers that are granted and not complete.",
        pair.transfers_alive);
  gauge("pdjob_kv_link_leases",
        "Prompts whose KV is kept for a decode worker that has no rows for it yet.",
        pair.waits_alive);
  gauge("pdjob_kv_link_suspect", "1 while several digest errors of late make the pair suspect.",
        pair.suspect);
}

void append_pair(JsonWriter& json, const PairStats& pair) {
  const double busy = seconds(pair.busy);
  json.begin_object();
  json.key("peer").string(pair.peer);
  json.key("transport").string(to_string(pair.transport));
  json.key("encrypted").boolean(pair.encrypted);
  json.key("direction").string(to_string(pair.direction));
  json.key("state").string(to_string(pair.state));
  json.key("epoch").integer(pair.epoch);
  json.key("links_opened").integer(pair.links_opened);
  json.key("transfers").integer(pair.transfers);
  json.key("bytes").integer(pair.bytes);
  json.key("seconds").number(busy);
  json.key("gb_per_second").number(busy > 0 ? static_cast<double>(pair.bytes) / busy / 1e9 : 0);
  json.key("digest_errors").integer(pair.digest_errors());
  json.key("suspect").boolean(pair.suspect);
  json.key("transfers_alive").integer(pair.transfers_alive);
  json.key("leases").integer(pair.waits_alive);
  json.key("failures").begin_object();
  for (size_t i = 0; i < kvtransfer::kFailureCauses; ++i) {
    json.key(to_string(static_cast<FailureCause>(i))).integer(pair.failures[i]);
  }
  json.end_object();
  json.key("stalls").begin_object();
  for (size_t i = 0; i < kvtransfer::kStallCauses; ++i) {
    json.key(to_string(static_cast<StallCause>(i))).integer(pair.stalls[i]);
  }
  json.end_object();
  json.end_object();
}

}  // namespace

std::string kv_pairs_metrics(const std::vector<PairStats>& pairs,
                             const kvtransfer::EndpointStats& stats) {
  Metrics metrics;
  metrics.gauge("pdjob_kv_offers_alive", "Prompts whose KV is offered and not fetched yet.")
      .set(static_cast<double>(stats.offers_alive));
  metrics.gauge("pdjob_kv_fetches_alive", "Prompts whose KV is being fetched.")
      .set(static_cast<double>(stats.fetches_alive));
  metrics
      .gauge("pdjob_kv_waits_alive", "Prompts that will be fetched when there are rows for them.")
      .set(static_cast<double>(stats.waits_alive));
  metrics
      .counter("pdjob_kv_fingerprints_refused_total",
               "Decode workers whose link was refused, because their model, weights or build are "
               "others. 0 in a job that works.")
      .add(static_cast<double>(stats.fingerprints_refused));
  for (const PairStats& pair : pairs) {
    add_pair(metrics, pair);
  }
  return metrics.text();
}

std::string kv_pairs_json(const std::vector<PairStats>& pairs) {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for (const PairStats& pair : pairs) {
    append_pair(json, pair);
  }
  json.end_array();
  return text;
}

}  // namespace pdjob::worker
