#include "store/block_store.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace pdjob::store {
namespace {

using kvtransfer::BlockNews;
using kvtransfer::NamedBlock;

// The cost of a block: as many units for the weights' part of each token, and one more for each
// block before it, for attention. In common models both are equal near token 16384.
constexpr uint64_t kCostOfWeights = 256;
constexpr uint32_t kUsesMax = 16;  // A block that was popular once leaves in bounded time.

Error not_here() { return {ErrorCode::kNotFound, "the store does not have this block"}; }

}  // namespace

BlockStore::BlockStore(const BlockStoreOptions& options)
    : options_(options), slots_(options.memory_bytes), slab_use_(slots_.slabs()) {}

void BlockStore::step(const Event& event, Instant now, std::vector<Effect>& effects) {
  Turn turn{.now = now, .effects = effects};
  std::visit([&](const auto& each) { on(each, turn); }, event);
  start_fetches(turn);
}

void BlockStore::on(const kvtransfer::BlocksTold& event, Turn& turn) {
  if (event.news.kind == BlockNews::Kind::kWanted) {
    answer(event.news, turn);
  } else if (!draining_) {
    enqueue(event.news);
  }
}

void BlockStore::on(const DrainAsked& /*event*/, Turn& /*turn*/) {
  draining_ = true;
  for (const Coming& block : queue_) {
    on_their_way_.erase(block.name);
  }
  queue_.clear();
}

std::optional<ShapeId> BlockStore::find_shape(const BlockNews& news) const {
  const auto found = shape_ids_.find({.rows = news.rows, .row_bytes = news.row_bytes});
  return found == shape_ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ShapeId> BlockStore::find_or_add_shape(const BlockNews& news) {
  if (const auto known = find_shape(news)) {
    return known;
  }
  BlockShape shape{.rows = news.rows, .row_bytes = news.row_bytes};
  if (!is_sound(shape) || shapes_.size() >= options_.shapes_max) {
    return std::nullopt;
  }
  const auto added = slots_.add_shape(slot_bytes(shape));
  if (added) {
    shapes_.push_back(&shape_ids_.emplace(std::move(shape), *added).first->first);
    evictable_.emplace_back();
  }
  return added;
}

Place BlockStore::place_of(SlotId slot, ShapeId shape) const {
  return {.slot = slot, .offset = slots_.offset(slot), .shape = shape};
}

// --- what peers want

void BlockStore::answer(const BlockNews& news, Turn& turn) {
  const auto shape = find_shape(news);
  std::optional<Error> refusal;
  for (const NamedBlock& block : news.blocks) {
    if (offers_.contains(block.transfer)) {
      continue;  // Told twice. The first answer holds.
    }
    counts_.tokens_wanted += news.rows;
    if (!refusal) {
      refusal = offer(block, shape, turn);
    }
    if (refusal) {
      turn.emit(Refuse{.id = block.transfer, .reason = *refusal});
    } else {
      counts_.tokens_given += news.rows;
    }
  }
}

// Returns why the block is not offered.
std::optional<Error> BlockStore::offer(const NamedBlock& block, std::optional<ShapeId> shape,
                                       Turn& turn) {
  if (draining_) {
    return Error{ErrorCode::kUnavailable, "the store ends"};
  }
  if (offers_.size() >= options_.offers_max) {
    return Error{ErrorCode::kOverloaded, "the store sends too many blocks"};
  }
  const auto found = by_name_.find(block.name);
  if (found == by_name_.end()) {
    return not_here();
  }
  const SlotId slot = found->second;
  Kept& kept = kept_.at(slot);
  if (kept.shape != shape) {
    return not_here();
  }
  use(kept, slot);
  offers_.emplace(block.transfer, slot);
  turn.emit(Offer{.id = block.transfer,
                  .place = place_of(slot, kept.shape),
                  .digest = kept.digest,
                  .deadline = turn.now + options_.offer_timeout});
  return std::nullopt;
}

void BlockStore::on(const kvtransfer::OfferDone& event, Turn& turn) {
  end_offer(event.id, false, turn);
}

void BlockStore::on(const kvtransfer::OfferFailed& event, Turn& turn) {
  end_offer(event.id, event.error.code == ErrorCode::kCorrupt, turn);
}

void BlockStore::end_offer(TransferId id, bool corrupt, Turn& turn) {
  const auto ended = offers_.extract(id);
  if (!ended) {
    return;
  }
  const SlotId slot = ended.mapped();
  Kept& kept = kept_.at(slot);
  PDJOB_CHECK(kept.offers > 0, slot.slab, slot.index);
  if (corrupt && !kept.corrupt) {
    turn.emit(BlockCorrupt{kept.name});
    ++counts_.corrupt;
    kept.corrupt = true;
    forget_name(kept);
  }
  --kept.offers;
  --slab_use_[slot.slab].moving;
  if (!kept.corrupt) {
    list(kept, slot);
  } else if (kept.offers == 0) {
    kept_.erase(slot);
    slots_.give(slot);
  }
}

// --- what peers hold

void BlockStore::enqueue(const BlockNews& news) {
  const auto shape = find_or_add_shape(news);
  if (!shape) {
    counts_.no_room += news.blocks.size();
    return;
  }
  const auto source =
      std::make_shared<const Source>(Source{.holder = news.holder, .shape = *shape});
  Parent parent;
  uint32_t depth = 0;
  if (news.before != BlockName{}) {
    const auto before = depth_of(news.before);
    if (!before) {
      counts_.useless += news.blocks.size();
      return;
    }
    parent = news.before;
    depth = *before + 1;
  }
  for (size_t i = 0; i < news.blocks.size(); ++i) {
    const NamedBlock& block = news.blocks[i];
    if (const auto known = depth_of(block.name)) {
      depth = *known;
    } else if (queue_.size() >= options_.queued_max) {
      counts_.too_many += news.blocks.size() - i;
      return;
    } else {
      queue_.push_back({.name = block.name,
                        .transfer = block.transfer,
                        .parent = parent,
                        .depth = depth,
                        .source = source});
      on_their_way_.emplace(block.name, OnItsWay{.depth = depth});
    }
    parent = block.name;
    ++depth;
  }
}

// None: the block is neither here nor on its way.
std::optional<uint32_t> BlockStore::depth_of(BlockName name) const {
  if (const auto here = by_name_.find(name); here != by_name_.end()) {
    return kept_.at(here->second).depth;
  }
  const auto soon = on_their_way_.find(name);
  return soon == on_their_way_.end() ? std::nullopt : std::optional(soon->second.depth);
}

void BlockStore::start_fetches(Turn& turn) {
  while (fetches_.size() < options_.fetches_max && !queue_.empty()) {
    Coming block = std::move(queue_.front());
    queue_.pop_front();
    if (!is_useful(block)) {
      ++counts_.useless;
      on_their_way_.erase(block.name);
      continue;
    }
    add_successor(block);  // First, so that the block before it is not evicted for it.
    const auto slot = make_room(block.source->shape);
    if (!slot) {
      ++counts_.no_room;
      remove_successor(block.parent);
      on_their_way_.erase(block.name);
      continue;
    }
    on_their_way_.at(block.name).fetching = true;
    turn.emit(Fetch{.id = block.transfer,
                    .holder = block.source->holder,
                    .place = place_of(*slot, block.source->shape),
                    .deadline = turn.now + options_.fetch_timeout});
    const TransferId id = block.transfer;
    fetches_.emplace(id, Fetching{.block = std::move(block), .slot = *slot});
  }
}

bool BlockStore::is_useful(const Coming& block) const {
  if (fetches_.contains(block.transfer) || retired_.contains(block.transfer)) {
    return false;  // A peer used the id twice, and the endpoint would not report on it.
  }
  if (const auto own = successors_.find(block.name);
      own != successors_.end() && own->second.depth != block.depth + 1) {
    return false;  // Its successors of earlier, which lost it, came at another place.
  }
  if (!block.parent) {
    return true;
  }
  if (const auto here = by_name_.find(*block.parent); here != by_name_.end()) {
    return kept_.at(here->second).depth + 1 == block.depth;
  }
  const auto soon = on_their_way_.find(*block.parent);
  return soon != on_their_way_.end() && soon->second.fetching &&
         soon->second.depth + 1 == block.depth;
}

void BlockStore::on(const kvtransfer::FetchDone& event, Turn& /*turn*/) {
  auto ended = fetches_.extract(event.id);
  if (!ended) {
    return;
  }
  const Fetching& fetch = ended.mapped();
  const Coming& block = fetch.block;
  const ShapeId shape = block.source->shape;
  if (event.rows != shapes_[shape.value]->rows) {
    give_up(fetch);
    return release(fetch.slot);
  }
  on_their_way_.erase(block.name);
  --slab_use_[fetch.slot.slab].moving;
  Kept& kept = kept_[fetch.slot];
  kept = {.name = block.name,
          .parent = block.parent,
          .depth = block.depth,
          .shape = shape,
          .digest = event.digest};
  by_name_.emplace(block.name, fetch.slot);
  ++counts_.taken;
  rate(kept, fetch.slot);
  list(kept, fetch.slot);
}

void BlockStore::on(const kvtransfer::FetchFailed& event, Turn& /*turn*/) {
  const auto ended = fetches_.extract(event.id);
  if (!ended) {
    return;
  }
  give_up(ended.mapped());
  if (event.region_safe) {
    release(ended.mapped().slot);
  } else {
    retired_.emplace(event.id, ended.mapped().slot);
  }
}

void BlockStore::on(const kvtransfer::FetchReleased& event, Turn& /*turn*/) {
  if (const auto released = retired_.extract(event.id)) {
    release(released.mapped());
  }
}

void BlockStore::give_up(const Fetching& fetch) {
  ++counts_.fetches_failed;
  on_their_way_.erase(fetch.block.name);
  remove_successor(fetch.block.parent);
}

void BlockStore::release(SlotId slot) {
  --slab_use_[slot.slab].moving;
  slots_.give(slot);
}

// --- eviction

std::optional<SlotId> BlockStore::take_slot(ShapeId shape) {
  const auto slot = slots_.take(shape);
  if (slot) {
    SlabUse& use = slab_use_[slot->slab];
    ++use.moving;
    use.priority_max = slots_.taken(slot->slab) == 1 ? 0 : use.priority_max;
  }
  return slot;
}

std::optional<SlotId> BlockStore::make_room(ShapeId shape) {
  if (const auto free = take_slot(shape)) {
    return free;
  }
  const auto& own = evictable_[shape.value];
  const uint64_t least = own.empty() ? std::numeric_limits<uint64_t>::max() : own.begin()->first;
  if (const auto slab = least_slab_of_others(shape, least)) {
    while (true) {
      const auto next = kept_.lower_bound({.slab = *slab, .index = 0});
      if (next == kept_.end() || next->first.slab != *slab) {
        break;
      }
      evict(next->first);
    }
  } else if (!own.empty()) {
    evict(own.begin()->second);
  }
  return take_slot(shape);
}

// Returns the slab of another shape with the lowest priority_max, if it is below `below`.
std::optional<uint32_t> BlockStore::least_slab_of_others(ShapeId shape, uint64_t below) const {
  std::optional<uint32_t> least;
  for (uint32_t slab = 0; slab < slots_.slabs(); ++slab) {
    const SlabUse& use = slab_use_[slab];
    if (slots_.owner(slab) != shape && use.moving == 0 && use.priority_max < below) {
      below = use.priority_max;
      least = slab;
    }
  }
  return least;
}

void BlockStore::evict(SlotId slot) {
  auto evicted = kept_.extract(slot);
  Kept& kept = evicted.mapped();
  PDJOB_CHECK(kept.offers == 0 && !kept.corrupt, slot.slab, slot.index);
  unlist(kept, slot);
  forget_name(kept);
  clock_ = std::max(clock_, kept.priority);
  slots_.give(slot);
  ++counts_.evicted;
}

void BlockStore::forget_name(Kept& kept) {
  by_name_.erase(kept.name);
  remove_successor(kept.parent);
}

void BlockStore::add_successor(const Coming& block) {
  if (!block.parent) {
    return;
  }
  Successors& of = successors_[*block.parent];
  of.depth = block.depth;
  ++of.count;
  if (const auto here = by_name_.find(*block.parent); here != by_name_.end()) {
    unlist(kept_.at(here->second), here->second);
  }
}

void BlockStore::remove_successor(const Parent& parent) {
  const auto of = parent ? successors_.find(*parent) : successors_.end();
  if (of == successors_.end() || --of->second.count > 0) {
    return;
  }
  successors_.erase(of);
  if (const auto here = by_name_.find(*parent); here != by_name_.end()) {
    list(kept_.at(here->second), here->second);
  }
}

void BlockStore::unlist(const Kept& kept, SlotId slot) {
  evictable_[kept.shape.value].erase({kept.priority, slot});
}

void BlockStore::list(const Kept& kept, SlotId slot) {
  if (kept.offers == 0 && !successors_.contains(kept.name)) {
    evictable_[kept.shape.value].emplace(kept.priority, slot);
  }
}

void BlockStore::use(Kept& kept, SlotId slot) {
  unlist(kept, slot);
  ++kept.offers;
  ++slab_use_[slot.slab].moving;
  kept.uses = std::min(kept.uses + 1, kUsesMax);
  rate(kept, slot);
}

void BlockStore::rate(Kept& kept, SlotId slot) {
  kept.priority = clock_ + kept.uses * (kCostOfWeights + kept.depth);
  uint64_t& slab = slab_use_[slot.slab].priority_max;
  slab = std::max(slab, kept.priority);
}

}  // namespace pdjob::store
