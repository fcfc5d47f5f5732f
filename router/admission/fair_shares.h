// FairShares orders the requests of several tenants in one queue. Each tenant gets a share by its
// weight, however much the others ask. This is start-time fair queueing (Goyal, Vin and Cheng,
// 1996), in virtual time.
//
// A request begins when its tenant's previous one ends, or now, whichever is later. It takes its
// cost divided by the weight. The earliest beginning is served first. With one tenant, that is the
// order of arrival. Pure.
#pragma once

#include <cstdint>
#include <map>

namespace pdjob::router {

class FairShares {
 public:
  // Returns the virtual time at which a new request of the tenant begins. `weight` is at least 1.
  uint64_t begin(uint32_t tenant, uint32_t weight, uint64_t cost);
  // Records that a request that begins at `start` is served.
  void served(uint64_t start) { now_ = start > now_ ? start : now_; }

 private:
  uint64_t now_ = 0;
  std::map<uint32_t, uint64_t> ends_;  // By tenant: where its last request ends.
};

}  // namespace pdjob::router
