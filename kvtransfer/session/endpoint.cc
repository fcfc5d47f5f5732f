#include "kvtransfer/session/endpoint.h"

#include "kvtransfer/link/link_id.h"

namespace pdjob::kvtransfer {

EndpointStats Endpoint::stats() const {
  const EndpointCounters& counters = context_.counters;
  return {.links = counters.links,
          .offers_alive = counters.offers_alive,
          .fetches_alive = counters.fetches_alive,
          .waits_alive = counters.waits_alive,
          .bytes_sent = counters.bytes_sent,
          .bytes_received = counters.bytes_received,
          .transfers_sent = counters.transfers_sent,
          .transfers_received = counters.transfers_received,
          .transfers_failed = counters.transfers_failed,
          .digest_errors = counters.digest_errors,
          .fingerprints_refused = counters.fingerprints_refused};
}

std::vector<PairStats> Endpoint::pairs() {
  std::vector<std::vector<LinkId>> links;
  std::vector<PairStats> rows = context_.pairs.rows(context_.timers.exact_now(), links);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const LinkId link : links[i]) {
      sender_.count_alive(link, rows[i]);
      receiver_.count_alive(link, rows[i]);
    }
  }
  return rows;
}

}  // namespace pdjob::kvtransfer
