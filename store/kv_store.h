// KvStore: a store with its memory, its disk and its endpoint. It carries out what the core decides
// (block_store.h), on the thread of a loop, and reads and writes the disk on two others.
// Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/os/tied_posts.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/kv_endpoint.h"
#include "net/loop/loop.h"
#include "store/arena.h"
#include "store/block_disk.h"
#include "store/block_store.h"

namespace pdjob::store {

class KvStore {
 public:
  // Sets `options.sink`. The loop outlives the store. Without `disk`, blocks.disk_bytes is 0.
  static Result<std::unique_ptr<KvStore>> open(net::Loop& loop, const BlockStoreOptions& blocks,
                                               kvtransfer::EndpointOptions options,
                                               std::unique_ptr<BlockDisk> disk = nullptr,
                                               std::vector<StoredBlock> found = {});
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  // It gives and takes nothing more. Transfers under way go on. `written` is called once all that
  // it took is on disk.
  void drain(std::function<void()> written);

  const kvtransfer::KvEndpoint& endpoint() const { return *endpoint_; }
  const BlockStore& blocks() const { return blocks_; }

 private:
  KvStore(net::Loop& loop, const BlockStoreOptions& blocks, std::unique_ptr<BlockDisk> disk);

  void step(const Event& event);
  void carry_out(const Offer& offer);
  void carry_out(const Refuse& refuse);
  void carry_out(const Fetch& fetch);
  void carry_out(const BlockCorrupt& block);
  void carry_out(const Read& read);
  void carry_out(const Write& write);
  void ended(const Status& status, const Event& event);
  void warn(const std::string& what);

  net::Loop& loop_;
  TiedPosts<net::Loop> posts_;  // By the endpoint's thread, too.
  BlockStore blocks_;
  Arena arena_;  // The endpoint and the helpers read and write it until their end.
  std::function<void()> written_;
  Instant warns_again_at_{};
  std::unique_ptr<BlockDisk> disk_;
  std::unique_ptr<net::Helper> reader_;  // Of the disk.
  std::unique_ptr<net::Helper> writer_;
  std::unique_ptr<kvtransfer::KvEndpoint> endpoint_;
};

}  // namespace pdjob::store
