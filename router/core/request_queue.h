// RequestQueue: the requests that wait for workers, by model: a model with busy workers delays no
// other. Within a model, a higher priority comes first, and tenants share by weight. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/id.h"
#include "router/admission/fair_shares.h"
#include "router/core/router_events.h"

namespace pdjob::router {

class RequestQueue {
 public:
  // The order in which queued requests are served.
  struct Rank {
    uint32_t below = 0;   // UINT32_MAX - priority.
    uint64_t begins = 0;  // FairShares.
    uint64_t arrival = 0;
    friend auto operator<=>(const Rank&, const Rank&) = default;
  };

  // The place of a request that has arrived, whether it waits or not.
  Rank place_of(const RequestFacts& facts);
  // The request has a worker.
  void served(const Rank& place) { shares_.served(place.begins); }

  void add(const std::string& model, const Rank& place, RequestId id);
  // Ignores requests that do not wait.
  void remove(const std::string& model, const Rank& place);
  bool contains(const std::string& model, const Rank& place) const;
  size_t size() const;
  std::vector<std::string> models() const;
  // The first request of this model after `after`.
  std::optional<RequestId> next(const std::string& model, const Rank& after) const;
  // The request that makes room for this one: the last one of the model with the longest queue. So
  // a model without workers cannot keep others out. Empty: this one itself would be served last.
  std::optional<RequestId> displaced_by(const std::string& model, const Rank& place) const;

 private:
  std::map<std::string, std::map<Rank, RequestId>> queues_;  // None is empty.
  FairShares shares_;
  uint64_t arrivals_ = 0;
};

}  // namespace pdjob::router
