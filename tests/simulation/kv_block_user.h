// KvBlockUser: what a worker of the KV world tells a store, and takes from it. It stands for
// worker/blocks/block_exchange, in the same words, but it also lies. The bytes of a block follow
// from its name, so that a block that came under a wrong name is seen. Loop-bound, to the thread of
// the endpoint.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/random.h"
#include "kvtransfer/session/endpoint_event.h"
#include "tests/simulation/kv_process.h"
#include "tests/simulation/kv_rows.h"
#include "tests/simulation/kv_targets.h"

namespace pdjob::simulation {

// The blocks of a prompt, the first one in front. All have the same number of rows.
struct KvPrompt {
  uint32_t rows = 0;
  std::vector<BlockName> names;
  kvtransfer::BlockOwner owner;
};

// How a worker lies when it says what it holds.
enum class KvLie : uint32_t {
  kNone,
  kCircle,     // The first block comes again behind the last one.
  kBackwards,  // The last block is in front.
  kBefore,     // It names a wrong block in front of the first one.
  kRows,       // Its blocks have another number of rows.
  kRowBytes,   // Its windows are other ones.
  kUnsound,    // No block has this shape.
  kSameId,     // One transfer is to move two blocks.
  kOldId,      // A transfer that moves another block already.
  kTooMany,    // More blocks than the store takes at once.
  kFewRows,    // The last row is missing.
  kOwner,      // It makes up an owner.
  kContent,    // The rows belong to another name.
};
constexpr bool is_about_content(KvLie lie) {
  return lie == KvLie::kSameId || lie == KvLie::kOldId || lie == KvLie::kContent;
}
// Whose rows a block has (KvRows), and those of a liar's block of this name.
constexpr uint64_t owner_of(BlockName name) { return mix(name.high << 32 ^ name.low); }
constexpr uint64_t false_owner_of(BlockName name) { return mix(owner_of(name)); }
constexpr uint32_t kKvLies = static_cast<uint32_t>(KvLie::kContent);

class KvBlockUser {
 public:
  enum class MayMiss { kNo, kYes };

  KvBlockUser(KvProcess& process, uint64_t seed);

  // It has computed the blocks of the prompt, and tells the store of them.
  void hold(const KvPrompt& prompt, KvLie lie, const kvtransfer::EndpointAddress& store);
  // Computes over the rows of one block, at once.
  void compute_over();
  // Takes the first block of the prompt from the store, and the others once that one has come.
  void want(const KvPrompt& prompt, MayMiss may_miss, const kvtransfer::EndpointAddress& store,
            Duration within);
  // All that it wants.
  void cancel();

  // True: the event was about blocks.
  bool take(const kvtransfer::EndpointEvent& event);

  void check_idle() const;

 private:
  struct Block {
    KvRows rows{KvRows::Memory::kPrivate};
    bool changed = false;
  };
  using SharedBlock = std::shared_ptr<Block>;
  // A block that the store may fetch.
  struct Told {
    SharedBlock block;
    uint32_t rows = 0;
  };
  struct Given {
    SharedBlock block;
    std::shared_ptr<std::atomic<bool>> changed;
  };
  struct Load {
    KvPrompt prompt;
    MayMiss may_miss = MayMiss::kYes;
    kvtransfer::EndpointAddress store;
    Duration within{};  // Each answer comes.
    size_t asked = 0;
  };
  using SharedLoad = std::shared_ptr<Load>;

  template <class Other>
  bool on(const Other& /*event*/) {
    return false;
  }
  bool on(const kvtransfer::OfferAwaited& event);
  bool on(const kvtransfer::OfferDone& event) { return given_.erase(event.id) > 0; }
  bool on(const kvtransfer::OfferFailed& event) { return given_.erase(event.id) > 0; }
  bool on(const kvtransfer::FetchDone& event);
  bool on(const kvtransfer::FetchFailed& event);
  bool on(const kvtransfer::FetchReleased& event) { return targets_.take(event); }

  TransferId next_transfer();
  SharedBlock block_of(BlockName name, KvLie lie);
  void compute_over(const SharedBlock& block);
  void ask(const SharedLoad& load, size_t count);

  KvProcess& process_;
  const uint64_t seed_;
  Random random_;
  uint64_t transfers_made_ = 0;
  KvTargets targets_;
  std::map<BlockName, SharedBlock> held_;
  std::map<TransferId, Told> told_;
  std::map<TransferId, Given> given_;
  std::map<TransferId, SharedLoad> asked_;
};

}  // namespace pdjob::simulation
