// KvTargets: the memory that a process of the KV world fetches rows into. It checks what the
// endpoint promises of fetches (kv_endpoint.h). Loop-bound, to the thread of the endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "kvtransfer/session/endpoint_event.h"
#include "tests/simulation/kv_process.h"
#include "tests/simulation/kv_rows.h"

namespace pdjob::simulation {

class KvTargets {
 public:
  struct Wanted {
    uint32_t rows = 0;
    std::vector<uint64_t> owners;  // The rows must be those of one of them.
    std::vector<std::byte> tail;
  };

  KvTargets(KvProcess& process, size_t places);

  // Returns false if no memory is free, or the transfer is being fetched.
  bool fetch(TransferId id, const kvtransfer::EndpointAddress& peer, Wanted wanted,
             Instant deadline);
  // Also a fetch that has failed, and whose rows may still be written.
  bool contains(TransferId id) const { return fetches_.contains(id); }
  size_t free() const { return places_ - fetches_.size(); }
  // All that are here, for a caller that cancels them.
  std::vector<TransferId> ids() const;

  // Each returns false if this is no end of a fetch.
  bool take(const kvtransfer::FetchDone& event);
  bool take(const kvtransfer::FetchFailed& event);
  bool take(const kvtransfer::FetchReleased& event);

  // At the end, nothing is alive. All writes to memory came before it was given on.
  void check_idle() const;

 private:
  struct Slot {
    KvRows rows{KvRows::Memory::kShared};
    uint64_t canary = 0;  // The owner of its bytes while nobody may write them; 0: in use.
  };
  struct Fetch {
    size_t slot = 0;
    Wanted wanted;
    uint64_t number = 0;
    bool reported = false;  // It failed, and its rows are not given on yet.
  };

  void give_on(TransferId id);

  KvProcess& process_;
  const size_t places_;
  std::vector<Slot> slots_;  // Those that were needed so far.
  std::map<TransferId, Fetch> fetches_;
  uint64_t fetches_made_ = 0;
};

}  // namespace pdjob::simulation
