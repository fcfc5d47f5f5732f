// KvStoreLife: one life of a store in the KV world. The core, the memory and the endpoint are the
// production code; this carries out what the core decides, like store/kv_store. It checks what the
// core promises. Loop-bound, to the world's loop.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "store/arena.h"
#include "store/block_store.h"
#include "tests/simulation/kv_process.h"
#include "tests/simulation/sim_kv_disk.h"

namespace pdjob::simulation {

class KvStoreLife {
 public:
  // `disk` outlives it.
  KvStoreLife(KvScene& scene, const std::string& name, bool slow, uint64_t seed,
              const store::BlockStoreOptions& options, SimKvDisk& disk);
  KvStoreLife(const KvStoreLife&) = delete;
  KvStoreLife& operator=(const KvStoreLife&) = delete;
  ~KvStoreLife() { die(); }

  SimProcess& process() { return process_.loop(); }
  const kvtransfer::EndpointAddress& address() const { return process_.address(); }
  void trace(const std::string& what) const { process_.trace(what); }
  void die() { process_.die(); }
  // In a turn of its own.
  void drain();
  // One bit of its memory changes, maybe of a block.
  void change_bit(Random& random);

  // At the end, nothing is under way, and only kept blocks use memory.
  void check_idle() const;

 private:
  template <class Other>
  void on(const Other& event) {
    step(event);
  }
  void on(const kvtransfer::FetchDone& event);
  void on(const kvtransfer::FetchFailed& event);
  void on(const kvtransfer::OfferFailed& event);
  void on(const kvtransfer::BlocksTold& event);
  void step(const store::Event& event);
  // What is in memory, and whose it is.
  struct Kept {
    std::map<BlockName, store::Block> blocks;
    std::map<store::BlockOwner, uint64_t> bytes;
    uint64_t owners = 0;
  };
  Kept kept() const;
  // After a step: what was kept before it is gone only as the owners' shares allow (block_index.h).
  void check_shares(const Kept& before, const std::vector<store::Effect>& effects) const;
  void carry_out(const store::Offer& offer);
  void carry_out(const store::Refuse& refuse);
  void carry_out(const store::Fetch& fetch);
  void carry_out(const store::BlockCorrupt& block);
  void carry_out(const store::Read& read);
  void carry_out(const store::Write& write);
  size_t slots_taken() const;

  SimKvDisk& disk_;
  store::BlockStore blocks_;
  store::Arena arena_;
  bool drained_ = false;
  std::map<TransferId, store::SlotId> offered_;  // Also those that have ended.
  std::set<BlockName> names_;                    // That it was told of, or read.
  std::set<store::SlotId> damaged_;              // Slots whose bytes an offer found to be wrong.
  KvProcess process_;
  const std::unique_ptr<SimThread> core_;  // The thread of the core.
};

}  // namespace pdjob::simulation
