// A worker's report on its KV links, as Prometheus text and as JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "kvtransfer/kv_endpoint.h"

namespace pdjob::worker {

// The metrics of all pairs, built anew for each call, so the series of a removed pair ends.
std::string kv_pairs_metrics(const std::vector<kvtransfer::PairStats>& pairs,
                             const kvtransfer::EndpointStats& stats);

// A JSON array.
std::string kv_pairs_json(const std::vector<kvtransfer::PairStats>& pairs);

}  // namespace pdjob::worker
