// StoreStory: a BlockStore whose endpoint and disk are the test.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/block_store.h"

namespace pdjob::store {

using kvtransfer::BlockNews;
using kvtransfer::BlocksTold;
using kvtransfer::FetchDone;
using kvtransfer::FetchFailed;
using kvtransfer::FetchReleased;
using kvtransfer::NamedBlock;
using kvtransfer::OfferDone;
using kvtransfer::OfferFailed;

inline const BlockShape kShape{.rows = 64, .row_bytes = {8, 8}};    // 1024 bytes
inline const BlockShape kOther{.rows = 64, .row_bytes = {16, 16}};  // 2048 bytes

inline TransferId transfer(uint64_t number) { return {.high = 7, .low = number}; }
inline BlockName name(uint64_t number) { return {.high = 3, .low = number}; }
inline uint64_t digest_of(uint64_t block) { return 1000 + block; }

// A store whose endpoint is the test: it says what happens to transfers. Transfers count from 1.
class StoreStory {
 public:
  using Words = std::vector<std::string>;

  explicit StoreStory(const BlockStoreOptions& options) : store(options) {}

  Words wanted(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    return tell(BlockNews::Kind::kWanted, blocks, shape);
  }
  Words held(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    return tell(BlockNews::Kind::kHeld, blocks, shape);
  }
  Words held_behind(uint64_t before, const std::vector<uint64_t>& blocks) {
    return tell(BlockNews::Kind::kHeld, blocks, kShape, name(before));
  }
  Words fetched(uint64_t id) {
    return step(
        FetchDone{.id = transfer(id), .rows = kShape.rows, .digest = digest_of(block_of_.at(id))});
  }
  Words fetch_failed(uint64_t id, bool safe = true) {
    return step(FetchFailed{
        .id = transfer(id), .error = {ErrorCode::kPeerFailed, "gone"}, .region_safe = safe});
  }
  Words released(uint64_t id) { return step(FetchReleased{transfer(id)}); }
  Words offered(uint64_t id) { return step(OfferDone{.id = transfer(id)}); }
  Words offer_failed(uint64_t id, bool rows_damaged) {
    return step(OfferFailed{
        .id = transfer(id), .error = {ErrorCode::kCorrupt, "why"}, .rows_damaged = rows_damaged});
  }
  Words drain() { return step(DrainAsked{}); }
  Words read(uint64_t block, bool ok = true) { return step(BlockRead{name(block), ok}); }
  Words written(uint64_t block, bool ok = true) { return step(BlockWritten{name(block), ok}); }

  // The store has these blocks afterwards, if it has room.
  void put(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    const uint64_t first = transfers_ + 1;
    held(blocks, shape);
    for (uint64_t id = first; id <= transfers_; ++id) {
      fetched(id);
    }
  }
  // Uses the blocks once.
  void use(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    const uint64_t first = transfers_ + 1;
    wanted(blocks, shape);
    for (uint64_t id = first; id <= transfers_; ++id) {
      offered(id);
    }
  }
  // Which of the blocks could be used alone.
  std::vector<uint64_t> has(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    std::vector<uint64_t> present;
    for (const uint64_t block : blocks) {
      const uint64_t id = transfers_ + 1;
      if (wanted({block}, shape).front().starts_with("offer")) {
        present.push_back(block);
        offered(id);
      }
    }
    return present;
  }
  uint64_t last() const { return transfers_; }

  BlockStore store;
  Instant now{};
  BlockOwner owner;  // Of what is held next.

 private:
  Words tell(BlockNews::Kind kind, const std::vector<uint64_t>& blocks, const BlockShape& shape,
             BlockName before = {}) {
    BlockNews news{
        .kind = kind, .rows = shape.rows, .row_bytes = shape.row_bytes, .before = before};
    if (kind == BlockNews::Kind::kHeld) {
      news.owner = owner;
    }
    for (const uint64_t block : blocks) {
      block_of_[++transfers_] = block;
      news.blocks.push_back({.name = name(block), .transfer = transfer(transfers_)});
    }
    return step(BlocksTold{.peer = "peer", .news = std::move(news)});
  }
  Words step(const Event& event) {
    std::vector<Effect> effects;
    store.step(event, now, effects);
    Words words;
    for (const Effect& effect : effects) {
      words.push_back(std::visit([](const auto& each) { return word(each); }, effect));
    }
    return words;
  }
  static std::string word(const Offer& offer) {
    return "offer " + std::to_string(offer.id.low) + " digest " + std::to_string(offer.digest);
  }
  static std::string word(const Refuse& refuse) {
    return "refuse " + std::to_string(refuse.id.low) + ' ' + to_string(refuse.reason.code);
  }
  static std::string word(const Fetch& fetch) {
    return "fetch " + std::to_string(fetch.id.low) + " to " + at(fetch.place.slot);
  }
  static std::string word(const BlockCorrupt& block) {
    return "corrupt " + std::to_string(block.name.low);
  }
  static std::string word(const Read& read) {
    return "read " + std::to_string(read.name.low) + " to " + at(read.to.slot);
  }
  static std::string word(const Write& write) {
    return "write " + std::to_string(write.block.name.low) + " to " + at(write.to);
  }
  static std::string at(SlotId slot) {
    return std::to_string(slot.slab) + '.' + std::to_string(slot.index);
  }

  uint64_t transfers_ = 0;
  std::map<uint64_t, uint64_t> block_of_;
};
using Words = StoreStory::Words;
using Blocks = std::vector<uint64_t>;

}  // namespace pdjob::store
