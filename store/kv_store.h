// KvStore: a store with its memory and its endpoint. It carries out what the core decides
// (block_store.h), on the thread of a loop. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/os/tied_posts.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/kv_endpoint.h"
#include "net/loop/loop.h"
#include "store/arena.h"
#include "store/block_store.h"

namespace pdjob::store {

class KvStore {
 public:
  // Sets `options.sink`. The loop outlives the store.
  static Result<std::unique_ptr<KvStore>> open(net::Loop& loop, const BlockStoreOptions& blocks,
                                               kvtransfer::EndpointOptions options);
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  // It gives and takes nothing more. Transfers under way go on.
  void drain() { step(DrainAsked{}); }

  const kvtransfer::KvEndpoint& endpoint() const { return *endpoint_; }
  const BlockStore& blocks() const { return blocks_; }

 private:
  KvStore(net::Loop& loop, const BlockStoreOptions& blocks)
      : loop_(loop), posts_(loop), blocks_(blocks), arena_(blocks_.slots().slab_bytes()) {}

  void step(const Event& event);
  void carry_out(const Offer& offer);
  void carry_out(const Refuse& refuse);
  void carry_out(const Fetch& fetch);
  void carry_out(const BlockCorrupt& block);
  void warn(const std::string& what);

  net::Loop& loop_;
  TiedPosts<net::Loop> posts_;  // By the endpoint's thread, too.
  BlockStore blocks_;
  Arena arena_;  // The endpoint reads and writes it until its end.
  Instant warns_again_at_{};
  std::unique_ptr<kvtransfer::KvEndpoint> endpoint_;
};

}  // namespace pdjob::store
