#include "store/block_store.h"

#include <algorithm>
#include <utility>

namespace pdjob::store {
namespace {

using kvtransfer::BlockNews;
using kvtransfer::NamedBlock;

Error not_here() { return {ErrorCode::kNotFound, "the store does not have this block"}; }
Error no_room() {
  return {ErrorCode::kNotFound, "the block is on disk, and its owner's part of memory is in use"};
}
Error too_much() { return {ErrorCode::kOverloaded, "the store sends too many blocks"}; }

Place place_of(const BlockIndex& memory, SlotId slot, ShapeId shape) {
  return {.slot = slot, .offset = memory.slots().offset(slot), .shape = shape};
}

}  // namespace

BlockStore::BlockStore(const BlockStoreOptions& options)
    : options_(options),
      memory_(Slots::of_memory(options.memory_bytes)),
      disk_(Slots::of_disk(options.disk_bytes)) {}

size_t BlockStore::restore(std::vector<StoredBlock> found) {
  std::ranges::stable_sort(found, {}, [](const StoredBlock& each) { return each.block.depth; });
  for (StoredBlock& each : found) {
    Block& block = each.block;
    const auto shape = find_or_add_shape(std::move(each.shape));
    const auto parent = block.parent ? disk_.find(*block.parent) : std::nullopt;
    const bool is_chained =
        block.parent ? parent && disk_.block(*parent).depth + 1 == block.depth : block.depth == 0;
    if (shape && is_chained) {
      block.shape = *shape;
      disk_.restore(block, each.slot, each.digest);
    }
  }
  return disk_.size();
}

void BlockStore::step(const Event& event, Instant now, std::vector<Effect>& effects) {
  Turn turn{.now = now, .effects = effects};
  std::visit([&](const auto& each) { on(each, turn); }, event);
  start_fetches(turn);
  start_writes(turn);
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
  for (const Coming& coming : queue_) {
    on_their_way_.erase(coming.block.name);
  }
  queue_.clear();
}

std::optional<ShapeId> BlockStore::find_shape(const BlockShape& shape) const {
  const auto found = shape_ids_.find(shape);
  return found == shape_ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ShapeId> BlockStore::find_or_add_shape(BlockShape shape) {
  if (const auto known = find_shape(shape)) {
    return known;
  }
  if (!is_sound(shape) || shapes_.size() >= options_.shapes_max ||
      slot_bytes(shape) > memory_.slots().slab_bytes()) {
    return std::nullopt;
  }
  memory_.add_shape(slot_bytes(shape));
  disk_.add_shape(slot_bytes(shape));
  const ShapeId added{static_cast<uint32_t>(shapes_.size())};
  shapes_.push_back(&shape_ids_.emplace(std::move(shape), added).first->first);
  return added;
}

// --- what peers want

void BlockStore::answer(const BlockNews& news, Turn& turn) {
  const auto shape = find_shape({.rows = news.rows, .row_bytes = news.row_bytes});
  std::optional<Error> refusal;
  for (const NamedBlock& block : news.blocks) {
    if (offers_.contains(block.transfer) || waiting_.contains(block.transfer)) {
      continue;  // Told twice. The first answer holds.
    }
    counts_.tokens_wanted += news.rows;
    if (!refusal) {
      refusal = give(block, shape, turn);
    }
    if (refusal) {
      turn.emit(Refuse{.id = block.transfer, .reason = *refusal});
    }
  }
}

// Returns why the block is not given.
std::optional<Error> BlockStore::give(const NamedBlock& block, std::optional<ShapeId> shape,
                                      Turn& turn) {
  if (draining_) {
    return Error{ErrorCode::kUnavailable, "the store ends"};
  }
  if (offers() >= options_.offers_max) {
    return too_much();
  }
  const auto stored = disk_.find(block.name);
  if (stored && disk_.block(*stored).shape == shape) {
    disk_.count_use(*stored);
  }
  if (const auto here = memory_.find(block.name)) {
    if (memory_.block(*here).shape != shape) {
      return not_here();
    }
    memory_.count_use(*here);
    offer(block.transfer, *here, turn);
    return std::nullopt;
  }
  return stored && disk_.block(*stored).shape == shape
             ? give_from_disk(*stored, block.transfer, turn)
             : not_here();
}

std::optional<Error> BlockStore::give_from_disk(SlotId slot, TransferId id, Turn& turn) {
  const Block& block = disk_.block(slot);
  auto read = reads_.find(block.name);
  if (read == reads_.end()) {
    const auto to = memory_.reserve(block);
    if (!to) {
      return no_room();  // Not kOverloaded: workers would leave the store alone, for all tenants.
    }
    disk_.pin(slot);
    read = reads_.emplace(block.name, Reading{.from = slot, .to = *to, .waiting = {}}).first;
    turn.emit(Read{.name = block.name, .from = slot, .to = place_of(memory_, *to, block.shape)});
  }
  read->second.waiting.push_back(id);
  waiting_.insert(id);
  return std::nullopt;
}

void BlockStore::offer(TransferId id, SlotId slot, Turn& turn) {
  const ShapeId shape = memory_.block(slot).shape;
  memory_.pin(slot);
  offers_.emplace(id, slot);
  counts_.tokens_given += shapes_[shape.value]->rows;
  turn.emit(Offer{.id = id,
                  .place = place_of(memory_, slot, shape),
                  .digest = memory_.digest(slot),
                  .deadline = turn.now + options_.offer_timeout});
}

void BlockStore::on(const kvtransfer::OfferDone& event, Turn& turn) {
  end_offer(event.id, false, turn);
}

void BlockStore::on(const kvtransfer::OfferFailed& event, Turn& turn) {
  end_offer(event.id, event.rows_damaged, turn);
}

void BlockStore::end_offer(TransferId id, bool corrupt, Turn& turn) {
  const auto ended = offers_.extract(id);
  if (!ended) {
    return;
  }
  const SlotId slot = ended.mapped();
  const BlockName name = memory_.block(slot).name;
  if (corrupt && memory_.find(name) == slot) {
    turn.emit(BlockCorrupt{name});
    ++counts_.corrupt;
    memory_.drop(slot);
    // It has the same digest, and may be where the bytes came from.
    if (const auto stored = disk_.find(name)) {
      disk_.drop(*stored);
    }
  }
  memory_.unpin(slot);
}

// --- what peers hold

void BlockStore::enqueue(const BlockNews& news) {
  const auto shape = find_or_add_shape({.rows = news.rows, .row_bytes = news.row_bytes});
  if (!shape) {
    counts_.no_room += news.blocks.size();
    return;
  }
  const auto holder = std::make_shared<const kvtransfer::EndpointAddress>(news.holder);
  std::optional<BlockName> parent;
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
      queue_.push_back({.block = {.name = block.name,
                                  .parent = parent,
                                  .owner = news.owner,
                                  .depth = depth,
                                  .shape = *shape},
                        .transfer = block.transfer,
                        .holder = holder});
      on_their_way_.emplace(block.name, OnItsWay{.depth = depth});
    }
    parent = block.name;
    ++depth;
  }
}

// None: the block is neither here nor on its way.
std::optional<uint32_t> BlockStore::depth_of(BlockName name) const {
  if (const auto here = memory_.find(name)) {
    return memory_.block(*here).depth;
  }
  if (const auto stored = disk_.find(name)) {
    return disk_.block(*stored).depth;
  }
  const auto soon = on_their_way_.find(name);
  return soon == on_their_way_.end() ? std::nullopt : std::optional(soon->second.depth);
}

void BlockStore::start_fetches(Turn& turn) {
  while (fetches_.size() < options_.fetches_max && !queue_.empty()) {
    const Coming coming = std::move(queue_.front());
    queue_.pop_front();
    const BlockName name = coming.block.name;
    const bool useful = is_useful(coming);
    const auto slot = useful ? memory_.reserve(coming.block) : std::nullopt;
    if (!slot) {
      ++(useful ? counts_.no_room : counts_.useless);
      on_their_way_.erase(name);
      continue;
    }
    on_their_way_.at(name).fetching = true;
    fetches_.emplace(coming.transfer, Fetching{.slot = *slot, .holder = coming.holder});
    turn.emit(Fetch{.id = coming.transfer,
                    .holder = *coming.holder,
                    .place = place_of(memory_, *slot, coming.block.shape),
                    .deadline = turn.now + options_.fetch_timeout});
  }
}

bool BlockStore::is_useful(const Coming& coming) const {
  if (fetches_.contains(coming.transfer) || retired_.contains(coming.transfer)) {
    return false;  // A peer used the id twice, and the endpoint would not report on it.
  }
  if (!coming.block.parent) {
    return true;
  }
  const auto soon = on_their_way_.find(*coming.block.parent);
  return depth_of(*coming.block.parent) == coming.block.depth - 1 &&
         (soon == on_their_way_.end() || soon->second.fetching);
}

void BlockStore::on(const kvtransfer::FetchDone& event, Turn& /*turn*/) {
  const auto ended = fetches_.extract(event.id);
  if (!ended) {
    return;
  }
  const SlotId slot = ended.mapped().slot;
  const Block block = memory_.coming(slot);
  if (event.rows != shapes_[block.shape.value]->rows) {
    return memory_.release(give_up(ended.mapped()));
  }
  on_their_way_.erase(block.name);
  memory_.keep(slot, event.digest);
  ++counts_.taken;
  if (disk_.slots().slabs() == 0) {
    return;
  }
  if (to_write_.size() < options_.queued_max) {
    to_write_.push_back(block.name);
  } else {
    ++counts_.not_written;
  }
}

void BlockStore::on(const kvtransfer::FetchFailed& event, Turn& /*turn*/) {
  const auto ended = fetches_.extract(event.id);
  if (!ended) {
    return;
  }
  const SlotId slot = give_up(ended.mapped());
  if (event.region_safe) {
    memory_.release(slot);
  } else {
    retired_.emplace(event.id, slot);
  }
}

void BlockStore::on(const kvtransfer::FetchReleased& event, Turn& /*turn*/) {
  if (const auto released = retired_.extract(event.id)) {
    memory_.release(released.mapped());
  }
}

SlotId BlockStore::give_up(const Fetching& fetch) {
  ++counts_.fetches_failed;
  const Block& block = memory_.coming(fetch.slot);
  on_their_way_.erase(block.name);
  counts_.useless += std::erase_if(queue_, [&](const Coming& coming) {
    const bool behind = coming.holder == fetch.holder && coming.block.depth > block.depth;
    if (behind) {
      on_their_way_.erase(coming.block.name);
    }
    return behind;
  });
  memory_.abandon(fetch.slot);
  return fetch.slot;
}

// --- the disk

void BlockStore::on(const BlockRead& event, Turn& turn) {
  const auto ended = reads_.extract(event.name);
  if (!ended) {
    return;
  }
  const Reading& read = ended.mapped();
  if (event.ok) {
    ++counts_.read;
    memory_.keep(read.to, disk_.digest(read.from));
  } else {
    ++counts_.disk_failed;
    memory_.abandon(read.to);
    memory_.release(read.to);
    disk_.drop(read.from);
  }
  disk_.unpin(read.from);
  for (const TransferId id : read.waiting) {
    waiting_.erase(id);
    if (event.ok) {
      offer(id, read.to, turn);
    } else {
      turn.emit(Refuse{.id = id, .reason = not_here()});
    }
  }
}

void BlockStore::start_writes(Turn& turn) {
  if (turn.now < disk_rests_until_) {
    if (draining_) {
      counts_.not_written += std::exchange(to_write_, {}).size();
    }
    return;
  }
  while (writes_.size() < options_.writes_max && !to_write_.empty()) {
    const BlockName name = to_write_.front();
    to_write_.pop_front();
    const auto from = memory_.find(name);
    if (disk_.find(name) || writes_.contains(name)) {
      continue;
    }
    const auto to = from ? disk_.reserve(memory_.block(*from)) : std::nullopt;
    if (!to) {
      ++counts_.not_written;
      continue;
    }
    memory_.pin(*from);
    writes_.emplace(name, Writing{.from = *from, .to = *to});
    const Block& block = memory_.block(*from);
    turn.emit(Write{.block = block,
                    .digest = memory_.digest(*from),
                    .from = place_of(memory_, *from, block.shape),
                    .to = *to});
  }
}

void BlockStore::on(const BlockWritten& event, Turn& turn) {
  const auto ended = writes_.extract(event.name);
  if (!ended) {
    return;
  }
  const Writing& write = ended.mapped();
  const bool was_corrupt = memory_.find(event.name) != write.from;
  if (event.ok && !was_corrupt) {
    ++counts_.written;
    disk_.keep(write.to, memory_.digest(write.from));
  } else {
    ++counts_.not_written;
    disk_.abandon(write.to);
    disk_.release(write.to);
  }
  if (!event.ok) {
    ++counts_.disk_failed;
    disk_rests_until_ = turn.now + options_.disk_rest;
  }
  memory_.unpin(write.from);
}

}  // namespace pdjob::store
