#include "tests/simulation/kv_store_life.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

namespace pdjob::simulation {

using store::BlockShape;
using store::ShapeId;
using store::SlotId;

KvStoreLife::KvStoreLife(KvScene& scene, const std::string& name, bool slow, uint64_t seed,
                         const store::BlockStoreOptions& options, SimKvDisk& disk)
    : disk_(disk),
      blocks_(options),
      arena_(blocks_.slots().slab_bytes()),
      process_(scene, name, slow, seed,
               [this](const kvtransfer::EndpointEvent& event) {
                 core_->post(
                     [this, event] { std::visit([this](const auto& each) { on(each); }, event); });
               }),
      core_(process_.loop().make_thread()) {
  blocks_.restore(disk.blocks());
}

void KvStoreLife::drain() {
  core_->post([this] {
    trace("drains");
    drained_ = true;
    step(store::DrainAsked{});
  });
}

void KvStoreLife::on(const kvtransfer::FetchDone& event) {
  trace("has " + event.id.to_string());
  step(event);
}

void KvStoreLife::on(const kvtransfer::FetchFailed& event) {
  trace("does not get " + event.id.to_string() + ": " + event.error.message +
        (event.region_safe ? "" : ", its slot is held"));
  step(event);
}

void KvStoreLife::on(const kvtransfer::OfferFailed& event) {
  trace("does not give " + event.id.to_string() + ": " + event.error.message);
  if (event.rows_damaged) {
    damaged_.insert(offered_.at(event.id));
  }
  step(event);
}

void KvStoreLife::on(const kvtransfer::BlocksTold& event) {
  for (const kvtransfer::NamedBlock& block : event.news.blocks) {
    names_.insert(block.name);
  }
  step(event);
}

KvStoreLife::Kept KvStoreLife::kept() const {
  const store::BlockIndex& memory = blocks_.memory();
  Kept kept{.owners = memory.owners()};
  for (const BlockName& name : names_) {
    if (const auto slot = memory.find(name)) {
      const store::Block& block = kept.blocks.emplace(name, memory.block(*slot)).first->second;
      kept.bytes[block.owner] = memory.bytes_of(block.owner);
    }
  }
  return kept;
}

void KvStoreLife::step(const store::Event& event) {
  const store::StoreCounts counts = blocks_.counts();
  const Kept before = kept();
  std::vector<store::Effect> effects;
  blocks_.step(event, core_->now(), effects);
  process_.scene().blocks_kept += blocks_.counts().taken - counts.taken;
  // A block for which there is no room may still have cost its owner one.
  if (blocks_.counts().no_room == counts.no_room) {
    check_shares(before, effects);
  }
  for (const store::Effect& effect : effects) {
    std::visit([this](const auto& each) { carry_out(each); }, effect);
  }
  const store::Slots& slots = blocks_.slots();
  process_.expect(slots.bytes_used() <= slots.bytes_max(), "a store stays within its memory, but",
                  slots.bytes_used());
  process_.expect(slots_taken() >= blocks_.blocks() + blocks_.fetches(),
                  "each block has a slot of its own, but", slots_taken(), "slots for",
                  blocks_.blocks() + blocks_.fetches());
  process_.expect(!drained_ || blocks_.queued() == 0, "a store that ends takes no more blocks, but",
                  blocks_.queued());
}

void KvStoreLife::check_shares(const Kept& before,
                               const std::vector<store::Effect>& effects) const {
  const store::BlockIndex& memory = blocks_.memory();
  const uint64_t bytes_max = memory.slots().bytes_max();
  std::set<BlockName> corrupt;
  std::vector<store::Block> came;
  for (const store::Effect& effect : effects) {
    if (const auto* fetch = std::get_if<store::Fetch>(&effect)) {
      came.push_back(memory.coming(fetch->place.slot));
    } else if (const auto* read = std::get_if<store::Read>(&effect)) {
      came.push_back(memory.coming(read->to.slot));
    } else if (const auto* dropped = std::get_if<store::BlockCorrupt>(&effect)) {
      corrupt.insert(dropped->name);
    }
  }
  const auto bytes_before = [&](store::BlockOwner owner) {
    const auto found = before.bytes.find(owner);
    return found == before.bytes.end() ? 0 : found->second;
  };
  std::set<store::BlockOwner> new_owners;
  for (const store::Block& block : came) {
    if (bytes_before(block.owner) == 0) {
      new_owners.insert(block.owner);
    }
  }
  const uint64_t owners = before.owners + new_owners.size();
  for (const auto& [name, block] : before.blocks) {
    const bool is_fair = std::ranges::any_of(came, [&, &of = block](const store::Block& other) {
      const uint64_t bytes = std::min(bytes_before(other.owner), memory.bytes_of(other.owner));
      const bool takes_slab = other.shape != of.shape && bytes * memory.owners() <= bytes_max;
      return other.owner == of.owner || takes_slab;
    });
    process_.expect(memory.find(name) || corrupt.contains(name) || is_fair ||
                        before.bytes.at(block.owner) * owners > bytes_max,
                    "an owner within its share loses no block to one with more, but",
                    block.owner.value, "did");
  }
}

void KvStoreLife::carry_out(const store::Offer& offer) {
  trace("offers " + offer.id.to_string());
  process_.expect(!drained_, "a store that ends gives no more blocks:", offer.id);
  process_.expect(!damaged_.contains(offer.place.slot),
                  "damaged bytes are not offered again:", offer.id);
  offered_[offer.id] = offer.place.slot;
  const BlockShape& shape = blocks_.shape(offer.place.shape);
  process_.loop().post(
      [this, offer, region = arena_.region(offer.place, shape), rows = shape.rows] {
        kvtransfer::Sender& sender = process_.endpoint().sender();
        sender.offer(offer.id, region, offer.deadline, {.digest = offer.digest});
        sender.commit(offer.id, rows, {}, process_.loop().now());
      });
}

void KvStoreLife::carry_out(const store::Refuse& refuse) {
  process_.loop().post(
      [this, refuse] { process_.endpoint().sender().refuse(refuse.id, refuse.reason); });
}

void KvStoreLife::carry_out(const store::Fetch& fetch) {
  trace("fetches " + fetch.id.to_string() + " into " + std::to_string(fetch.place.slot.slab) + "/" +
        std::to_string(fetch.place.slot.index));
  process_.expect(!drained_, "a store that ends takes no more blocks:", fetch.id);
  damaged_.erase(fetch.place.slot);
  const BlockShape& shape = blocks_.shape(fetch.place.shape);
  const auto region = arena_.allocate(fetch.place, shape);
  PDJOB_CHECK(region.has_value(), fetch.id);
  process_.loop().post([this, fetch, region = *region, rows = shape.rows] {
    process_.endpoint().receiver().fetch(fetch.id, fetch.holder, region, rows, fetch.deadline);
  });
}

void KvStoreLife::carry_out(const store::BlockCorrupt& /*block*/) {
  trace("drops a block whose bytes have changed");
  process_.expect(process_.scene().bytes_change, "bytes of a block stay as they came, but not");
}

void KvStoreLife::carry_out(const store::Read& read) {
  damaged_.erase(read.to.slot);
  const BlockShape& shape = blocks_.shape(read.to.shape);
  const auto region = arena_.allocate(read.to, shape);
  PDJOB_CHECK(region.has_value(), read.name.low);
  core_->post([this, read, rows = arena_.bytes(read.to, shape)] {
    const bool ok = disk_.read(read.from, rows).has_value();
    process_.scene().blocks_read += ok ? 1 : 0;
    trace(ok ? "reads a block from its disk" : "cannot read a block from its disk");
    core_->post([this, read, ok] { step(store::BlockRead{.name = read.name, .ok = ok}); });
  });
}

void KvStoreLife::carry_out(const store::Write& write) {
  const BlockShape& shape = blocks_.shape(write.from.shape);
  const store::StoredBlock block{
      .block = write.block, .shape = shape, .digest = write.digest, .slot = write.to};
  core_->post([this, block, rows = arena_.bytes(write.from, shape)] {
    const bool ok = disk_.write(block, rows).has_value();
    core_->post(
        [this, name = block.block.name, ok] { step(store::BlockWritten{.name = name, .ok = ok}); });
  });
}

void KvStoreLife::change_bit(Random& random) {
  const store::Slots& slots = blocks_.slots();
  const auto slab = static_cast<uint32_t>(random.below(slots.slabs()));
  const std::optional<ShapeId> shape = slots.owner(slab);
  const uint64_t at = random.next();
  if (!shape) {
    return;
  }
  // Slots that were never taken are not mapped yet.
  const BlockShape& of = blocks_.shape(*shape);
  const SlotId slot{.slab = slab, .index = static_cast<uint32_t>(at % slots.taken(slab))};
  const kvtransfer::Region region =
      arena_.region({.slot = slot, .offset = slots.offset(slot), .shape = *shape}, of);
  const kvtransfer::Window& window = region.windows[at % region.windows.size()];
  const uint64_t byte = at % (uint64_t{window.row_bytes} * of.rows);
  window.base[byte] ^= std::byte{1};
  trace("a bit of slot " + std::to_string(slab) + "/" + std::to_string(slot.index) + " changes");
}

size_t KvStoreLife::slots_taken() const {
  size_t taken = 0;
  for (uint32_t slab = 0; slab < blocks_.slots().slabs(); ++slab) {
    taken += blocks_.slots().taken(slab);
  }
  return taken;
}

void KvStoreLife::check_idle() const {
  const kvtransfer::EndpointStats stats = process_.endpoint().stats();
  process_.expect(blocks_.offers() == 0 && stats.offers_alive == 0,
                  "every offer of a store ends, but", blocks_.offers(), "and", stats.offers_alive,
                  "live");
  process_.expect(blocks_.fetches() == 0 && blocks_.queued() == 0 && stats.fetches_alive == 0,
                  "every fetch of a store ends, but", blocks_.fetches(), "are under way,",
                  blocks_.queued(), "are queued, and", stats.fetches_alive, "live");
  process_.expect(blocks_.disk().slots().bytes_used() <= blocks_.disk().slots().bytes_max(),
                  "a store stays within its disk");
  process_.expect(slots_taken() == blocks_.blocks(), "only blocks use memory, but", slots_taken(),
                  "slots are taken for", blocks_.blocks());
}

}  // namespace pdjob::simulation
