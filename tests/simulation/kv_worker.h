// The workers of the KV world: one life of one process, with a production endpoint and the memory
// of its rows. It checks what the endpoint promises (kv_endpoint.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kvtransfer/nccl/nccl_links.h"
#include "kvtransfer/session/endpoint.h"
#include "launcher/simulator/sim_process.h"
#include "launcher/simulator/sim_sockets.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_nccl.h"
#include "tests/simulation/sim_trace.h"

namespace pdjob::simulation {

constexpr uint32_t kKvRowsMax = 24;

// Memory for the rows of one sequence.
class KvRows {
 public:
  enum class Memory { kPrivate, kShared };
  explicit KvRows(Memory memory);
  KvRows(KvRows&& other) noexcept;
  KvRows& operator=(KvRows&&) = delete;
  ~KvRows();

  const kvtransfer::Region& region() const { return region_; }
  // The rows [first, last) are those of this owner.
  void fill(uint64_t owner, uint32_t first, uint32_t last);
  bool holds(uint64_t owner, uint32_t rows) const;

 private:
  kvtransfer::Region region_;
  size_t bytes_ = 0;
};

// Shared by all workers of a run.
struct KvScene {
  SimLoop& loop;
  SimSockets& sockets;
  SimTrace& trace;
  Invariants& invariants;
  const kvtransfer::LinkAuthority& authority;
  kvtransfer::KvTransferConfig config;
  kvtransfer::TransportOpener open_transport;
  SimNccl& nccl;
  std::set<TransferId> fetched = {};  // Transfers of which some receiver has all rows.
  uint64_t done = 0, failed = 0, released_late = 0;
};

class KvWorker final : private kvtransfer::LinkNetwork {
 public:
  // A slow one has turns of milliseconds.
  KvWorker(KvScene& scene, const std::string& name, bool slow, uint64_t seed);
  KvWorker(const KvWorker&) = delete;
  KvWorker& operator=(const KvWorker&) = delete;
  ~KvWorker();

  SimProcess& process() { return process_; }
  const kvtransfer::EndpointAddress& address() const { return address_; }
  void die();
  void trace(const std::string& what) const { scene_.trace.line(scene_.loop.now(), name(), what); }
  const std::string& name() const { return process_.name(); }

  // --- as a prefill worker
  void offer(TransferId id);
  void rows_ready(TransferId id, uint32_t rows);
  void commit(TransferId id, uint32_t rows);
  void withdraw(TransferId id);

  // --- as a decode worker
  void await(TransferId id, const kvtransfer::EndpointAddress& peer, Instant until);
  // Returns false if no memory is free, or the transfer is being fetched.
  bool fetch(TransferId id, const kvtransfer::EndpointAddress& peer, uint32_t rows,
             Instant deadline);
  void cancel(TransferId id);

  // At the end, nothing is alive. All writes to memory came before it was given on. `lied`: peers
  // lost messages, so a grant may wait as long as its link lives.
  void check_idle(bool lied) const;

 private:
  struct Slot {
    KvRows rows{KvRows::Memory::kShared};
    uint64_t canary = 0;  // The owner of its bytes while nobody may write them; 0: in use.
  };
  struct Fetch {
    size_t slot = 0;
    uint32_t rows = 0;
    uint64_t number = 0;
    bool reported = false;  // It failed, and its rows are not given on yet.
  };

  Result<std::unique_ptr<kvtransfer::LinkSocket>> connect(
      const kvtransfer::EndpointAddress& peer,
      const kvtransfer::TransportTraits& transport) override;

  void on(const kvtransfer::OfferAwaited& event);
  void on(const kvtransfer::OfferDone& event);
  void on(const kvtransfer::OfferFailed& event);
  void on(const kvtransfer::FetchDone& event);
  void on(const kvtransfer::FetchFailed& event);
  void on(const kvtransfer::FetchReleased& event);
  void on(const kvtransfer::BlocksTold& /*event*/) {}
  void end_offer(TransferId id);
  void give_on(TransferId id);

  template <class... Values>
  void expect(bool holds, const char* what, const Values&... values) const {
    scene_.invariants.expect(holds, what, values..., "at", name());
  }

  KvScene& scene_;
  SimProcess process_;
  kvtransfer::EndpointAddress address_;
  std::map<TransferId, KvRows> offers_;
  std::vector<Slot> slots_;
  std::map<TransferId, Fetch> fetches_;
  uint64_t fetches_made_ = 0;
  std::unique_ptr<kvtransfer::NcclLinks> nccl_;  // If the transport is nccl.
  std::optional<kvtransfer::Endpoint> endpoint_;
};

}  // namespace pdjob::simulation
