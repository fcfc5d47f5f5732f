// FairShares: in which order requests of several tenants are served from one queue, so that each
// gets a share by its weight however much the others ask. Start-time fair queueing (Goyal, Vin and
// Cheng, 1996): a request begins, in virtual time, when the tenant's one before it ends or now,
// whichever is later, and takes its cost divided by the weight. Who begins first is served first.
// With one tenant that is the order of arrival. Pure.
#pragma once

#include <cstdint>
#include <map>

namespace pdjob::router {

class FairShares {
 public:
  // The virtual time at which a new request of the tenant begins. `weight` is at least 1.
  uint64_t begin(uint32_t tenant, uint32_t weight, uint64_t cost);
  // A request that begins at `start` is served.
  void served(uint64_t start) { now_ = start > now_ ? start : now_; }

 private:
  uint64_t now_ = 0;
  std::map<uint32_t, uint64_t> ends_;  // Of the tenant's last request.
};

}  // namespace pdjob::router
