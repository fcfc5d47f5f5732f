// What a worker says of its KV links: Prometheus' text and JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "kvtransfer/kv_endpoint.h"

namespace pdjob::worker {

// The families of all pairs, made anew each time: so the series of a pair that is forgotten end.
std::string kv_pairs_metrics(const std::vector<kvtransfer::PairStats>& pairs,
                             const kvtransfer::EndpointStats& stats);

// A JSON array.
std::string kv_pairs_json(const std::vector<kvtransfer::PairStats>& pairs);

}  // namespace pdjob::worker
