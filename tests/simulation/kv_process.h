// KvProcess: one life of a process of the KV world. Its endpoint is the production one, on
// simulated sockets and virtual time. Loop-bound, to the thread of the endpoint.
#pragma once

#include <cstdint>
#include <functional>
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

// Shared by all processes of a run.
struct KvScene {
  SimLoop& loop;
  SimSockets& sockets;
  SimTrace& trace;
  Invariants& invariants;
  kvtransfer::KvTransferConfig config;
  kvtransfer::TransportOpener open_transport;
  SimNccl& nccl;
  std::set<TransferId> fetched = {};  // Transfers of which some receiver has all rows.
  uint64_t done = 0, failed = 0, released_late = 0;

  // The rows of all blocks, and the names under which a worker may give out rows of other blocks.
  std::vector<uint64_t> block_owners = {};
  std::set<BlockName> false_names = {};
  // A worker gives a block. Its rows change while they are read, perhaps.
  std::function<void(const std::string& name)> worker_gives;
  std::function<bool()> given_rows_change;
  bool blocks_fail = false;   // False: a store answers each wish, with the block or kNotFound.
  bool bytes_change = false;  // Bytes in a store's memory change, or transports damage them.
  uint64_t blocks_kept = 0, blocks_read = 0, blocks_loaded = 0, blocks_missing = 0,
           blocks_failed = 0;
};

class KvProcess final : private kvtransfer::LinkNetwork {
 public:
  using Emit = std::function<void(const kvtransfer::EndpointEvent&)>;
  // A slow one has turns of milliseconds.
  KvProcess(KvScene& scene, const std::string& name, bool slow, uint64_t seed, Emit emit);
  KvProcess(const KvProcess&) = delete;
  KvProcess& operator=(const KvProcess&) = delete;
  ~KvProcess() { die(); }

  KvScene& scene() const { return scene_; }
  SimProcess& loop() { return process_; }
  kvtransfer::Endpoint& endpoint() { return *endpoint_; }
  const kvtransfer::Endpoint& endpoint() const { return *endpoint_; }
  const kvtransfer::EndpointAddress& address() const { return address_; }
  const std::string& name() const { return process_.name(); }
  void die();
  void trace(const std::string& what) const { scene_.trace.line(scene_.loop.now(), name(), what); }

  template <class... Values>
  void expect(bool holds, const char* what, const Values&... values) const {
    scene_.invariants.expect(holds, what, values..., "at", name());
  }

 private:
  Result<std::unique_ptr<kvtransfer::LinkSocket>> connect(
      const kvtransfer::EndpointAddress& peer,
      const kvtransfer::TransportTraits& transport) override;

  KvScene& scene_;
  SimProcess process_;
  kvtransfer::EndpointAddress address_;
  std::unique_ptr<kvtransfer::NcclLinks> nccl_;  // If the transport is nccl.
  std::optional<kvtransfer::Endpoint> endpoint_;
};

}  // namespace pdjob::simulation
