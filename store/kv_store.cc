#include "store/kv_store.h"

#include <utility>
#include <variant>
#include <vector>

#include "common/log.h"

namespace pdjob::store {
namespace {

constexpr std::chrono::minutes kWarnsAgain{1};

}  // namespace

KvStore::KvStore(net::Loop& loop, const BlockStoreOptions& blocks, std::unique_ptr<BlockDisk> disk)
    : loop_(loop),
      posts_(loop),
      blocks_(blocks),
      arena_(blocks_.slots().slab_bytes()),
      disk_(std::move(disk)) {
  if (disk_ != nullptr) {
    reader_ = loop.make_helper("store-read");
    writer_ = loop.make_helper("store-write");
  }
}

Result<std::unique_ptr<KvStore>> KvStore::open(net::Loop& loop, const BlockStoreOptions& blocks,
                                               kvtransfer::EndpointOptions options,
                                               std::unique_ptr<BlockDisk> disk,
                                               std::vector<StoredBlock> found) {
  std::unique_ptr<KvStore> made(new KvStore(loop, blocks, std::move(disk)));
  made->blocks_.restore(std::move(found));
  options.sink = [store = made.get()](kvtransfer::EndpointEvent event) {
    store->posts_.post([store, event = std::move(event)] {
      std::visit([store](const auto& each) { store->step(each); }, event);
    });
  };
  PDJOB_TRY(made->endpoint_, kvtransfer::KvEndpoint::start(std::move(options)));
  return made;
}

void KvStore::drain(std::function<void()> written) {
  written_ = std::move(written);
  step(DrainAsked{});
}

void KvStore::step(const Event& event) {
  std::vector<Effect> effects;
  blocks_.step(event, loop_.now(), effects);
  for (const Effect& effect : effects) {
    std::visit([this](const auto& each) { carry_out(each); }, effect);
  }
  if (written_ && blocks_.unwritten() == 0) {
    std::exchange(written_, nullptr)();
  }
}

void KvStore::carry_out(const Offer& offer) {
  const BlockShape& shape = blocks_.shape(offer.place.shape);
  endpoint_->offer(offer.id, arena_.region(offer.place, shape), offer.deadline,
                   {.digest = offer.digest});
  endpoint_->commit(offer.id, shape.rows, {});
}

void KvStore::carry_out(const Refuse& refuse) { endpoint_->refuse(refuse.id, refuse.reason); }

void KvStore::carry_out(const Fetch& fetch) {
  const BlockShape& shape = blocks_.shape(fetch.place.shape);
  auto region = arena_.allocate(fetch.place, shape);
  if (!region) {
    warn(region.error().message);
    const kvtransfer::FetchFailed failed{.id = fetch.id, .error = region.error()};
    return posts_.post([this, failed] { step(failed); });
  }
  endpoint_->fetch(fetch.id, fetch.holder, std::move(*region), shape.rows, fetch.deadline);
}

void KvStore::carry_out(const BlockCorrupt& /*block*/) {
  warn("the bytes of a block no longer have their digest, it is dropped; " +
       std::to_string(blocks_.counts().corrupt) + " such blocks so far");
}

void KvStore::carry_out(const Read& read) {
  const BlockShape& shape = blocks_.shape(read.to.shape);
  if (const auto region = arena_.allocate(read.to, shape); !region) {
    return posts_.post([this, failed = region.error(), name = read.name] {
      ended(failed, BlockRead{.name = name, .ok = false});
    });
  }
  reader_->run([this, name = read.name, from = read.from, to = arena_.bytes(read.to, shape)] {
    const Status status = disk_->read(from, to);
    posts_.post(
        [this, status, name] { ended(status, BlockRead{.name = name, .ok = status.has_value()}); });
  });
}

void KvStore::carry_out(const Write& write) {
  const BlockShape& shape = blocks_.shape(write.from.shape);
  writer_->run(
      [this, from = arena_.bytes(write.from, shape),
       block = StoredBlock{
           .block = write.block, .shape = shape, .digest = write.digest, .slot = write.to}] {
        const Status status = disk_->write(block, from);
        posts_.post([this, status, name = block.block.name] {
          ended(status, BlockWritten{.name = name, .ok = status.has_value()});
        });
      });
}

// A read or a write of the disk has ended.
void KvStore::ended(const Status& status, const Event& event) {
  if (!status) {
    warn("the disk behind the store: " + status.error().message + "; " +
         std::to_string(blocks_.counts().disk_failed + 1) + " failures so far");
  }
  step(event);
}

// The metrics count all of them.
void KvStore::warn(const std::string& what) {
  if (loop_.now() >= warns_again_at_) {
    warns_again_at_ = loop_.now() + kWarnsAgain;
    log::warn(what);
  }
}

}  // namespace pdjob::store
