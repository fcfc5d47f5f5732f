#include "store/kv_store.h"

#include <utility>
#include <variant>
#include <vector>

#include "common/log.h"

namespace pdjob::store {
namespace {

constexpr std::chrono::minutes kWarnsAgain{1};

}  // namespace

Result<std::unique_ptr<KvStore>> KvStore::open(net::Loop& loop, const BlockStoreOptions& blocks,
                                               kvtransfer::EndpointOptions options) {
  std::unique_ptr<KvStore> made(new KvStore(loop, blocks));
  options.sink = [store = made.get()](kvtransfer::EndpointEvent event) {
    store->posts_.post([store, event = std::move(event)] {
      std::visit([store](const auto& each) { store->step(each); }, event);
    });
  };
  PDJOB_TRY(made->endpoint_, kvtransfer::KvEndpoint::start(std::move(options)));
  return made;
}

void KvStore::step(const Event& event) {
  std::vector<Effect> effects;
  blocks_.step(event, loop_.now(), effects);
  for (const Effect& effect : effects) {
    std::visit([this](const auto& each) { carry_out(each); }, effect);
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

// The metrics count all of them.
void KvStore::warn(const std::string& what) {
  if (loop_.now() >= warns_again_at_) {
    warns_again_at_ = loop_.now() + kWarnsAgain;
    log::warn(what);
  }
}

}  // namespace pdjob::store
