#include "worker/blocks/block_exchange.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/random.h"
#include "worker/blocks/block_names.h"

namespace pdjob::worker {
namespace {

using kvtransfer::BlockNews;
using std::chrono::seconds;

constexpr uint32_t kAskedAtOnce = 32;  // Blocks of one load under way.
// Of the first block, and of those at once. Both ends may wait for cores. A store that is slower
// gains nothing.
constexpr Duration kFirstAnswer = seconds(2);
constexpr Duration kAnswer = seconds(5);
constexpr Duration kRest = seconds(5);
constexpr Duration kGiven = seconds(10);  // A fetch of the store.
constexpr size_t kToldMax = 4096;         // Blocks that the store may fetch.

}  // namespace

BlockExchange::BlockExchange(engine::Engine& engine, Options options)
    : engine_(engine),
      options_(std::move(options)),
      sequences_(engine.config().sequences, options_.meaning),
      told_blocks_(engine.config().sequences, 0) {}

void BlockExchange::attach(kvtransfer::KvTransfers& transfers) {
  transfers_ = &transfers;
  for (const engine::KvWindow& window : engine_.kv_region(SequenceId{0}).windows) {
    row_bytes_.push_back(window.row_bytes);
  }
}

void BlockExchange::use(const std::optional<kvtransfer::EndpointAddress>& store) {
  is_there_ = store.has_value();
  if (!is_there_ || store_ == store) {
    return;
  }
  store_ = store;
  rests_until_ = {};
  std::ranges::fill(told_blocks_, 0);
}

bool BlockExchange::rests() const {
  return !is_there_ || options_.now() < rests_until_ ||
         std::ranges::any_of(loads_, [](const auto& load) { return load.second.unsafe > 0; });
}

void BlockExchange::about_to_trim(SequenceId sequence, uint32_t rows) {
  for (const auto& [id, given] : given_) {
    if (given.sequence == sequence && given.rows_end > rows) {
      given.changed->store(true);
    }
  }
  uint32_t& told = told_blocks_.at(sequence.value);
  told = std::min(told, rows / kBlockTokens);
  sequences_.trim(sequence, rows);
}

TransferId BlockExchange::next_transfer() {
  ++transfers_made_;
  return {.high = mix(options_.seed + 1), .low = mix(options_.seed + transfers_made_)};
}

kvtransfer::Region BlockExchange::block_region(SequenceId sequence, uint32_t block) const {
  const engine::KvRegion& all = engine_.kv_region(sequence);
  kvtransfer::Region region{.rows_max = kBlockTokens,
                            .shared_fd = all.shared_fd,
                            .shared_bytes = all.shared_bytes,
                            .device = all.device};
  region.windows.reserve(all.windows.size());
  for (const engine::KvWindow& window : all.windows) {
    const uint64_t offset = uint64_t{block} * kBlockTokens * window.row_bytes;
    region.windows.push_back({.base = window.base + offset,
                              .shared_offset = window.shared_offset + offset,
                              .row_bytes = window.row_bytes});
  }
  return region;
}

BlockNews BlockExchange::news_of(BlockNews::Kind kind) const {
  return {.kind = kind,
          .holder = kind == BlockNews::Kind::kHeld ? transfers_->address()
                                                   : kvtransfer::EndpointAddress{},
          .rows = kBlockTokens,
          .row_bytes = row_bytes_};
}

// --- takes

void BlockExchange::load(SequenceId sequence, const Beginning& beginning, uint32_t there,
                         std::vector<News>& news) {
  PDJOB_CHECK(!loads_.contains(sequence), sequence);
  PDJOB_CHECK(engine_.length(sequence) == there, sequence, there);
  const std::span<const Token> tokens(*beginning.tokens);
  // The last token is computed for its logits.
  std::vector<BlockName> names =
      sequences_.names_of(tokens.first(tokens.size() - 1), beginning.tenant);
  const uint32_t first = there / kBlockTokens;
  const auto blocks = static_cast<uint32_t>(names.size());
  if (rests() || blocks <= first || !engine_.reserve(sequence, blocks * kBlockTokens)) {
    // A reservation that failed has emptied the sequence.
    news.emplace_back(Loaded{.sequence = sequence, .rows = engine_.length(sequence)});
    return;
  }
  totals_.tokens_asked += uint64_t{blocks} * kBlockTokens - there;
  Load& load = loads_[sequence];
  load = {.beginning = beginning,
          .names = std::move(names),
          .there = there,
          .first = first,
          .asked_to = first,
          .came = std::vector<bool>(blocks, false)};
  ask(sequence, load, 1);
}

void BlockExchange::ask(SequenceId sequence, Load& load, uint32_t count) {
  const uint32_t from = load.asked_to;
  BlockNews wanted = news_of(BlockNews::Kind::kWanted);
  wanted.before = from > 0 ? load.names[from - 1] : BlockName{};
  for (uint32_t block = from; block < from + count; ++block) {
    wanted.blocks.push_back({.name = load.names[block], .transfer = next_transfer()});
    load.came[block] = false;
  }
  load.asked_to += count;
  load.under_way += count;
  const kvtransfer::EndpointAddress& store =
      load.elsewhere_from ? *load.beginning.elsewhere : *store_;
  transfers_->tell(store, wanted);
  const Instant deadline = options_.now() + (count == 1 ? kFirstAnswer : kAnswer);
  for (uint32_t i = 0; i < count; ++i) {
    const TransferId id = wanted.blocks[i].transfer;
    asked_[id] = {.sequence = sequence, .block = from + i};
    transfers_->fetch(id, store, block_region(sequence, from + i), kBlockTokens, deadline);
  }
}

void BlockExchange::cancel(SequenceId sequence) {
  const auto found = loads_.find(sequence);
  if (found == loads_.end()) {
    return;
  }
  found->second.stopped = true;
  for (const auto& [id, asked] : asked_) {
    if (asked.sequence == sequence) {
      transfers_->cancel(id);
    }
  }
}

void BlockExchange::block_ended(SequenceId sequence, std::vector<News>& news) {
  Load& load = loads_.at(sequence);
  --load.under_way;
  if (load.under_way > 0) {
    return;
  }
  const auto left = static_cast<uint32_t>(load.names.size()) - load.asked_to;
  const auto asked_end = load.came.begin() + load.asked_to;
  const auto missing = std::find(load.came.begin() + load.first, asked_end, false);
  if (missing == asked_end && left > 0 && may_ask(load)) {
    ask(sequence, load, std::min(left, kAskedAtOnce));
  } else if (missing != asked_end && may_ask_elsewhere(load)) {
    load.asked_to = static_cast<uint32_t>(missing - load.came.begin());
    load.elsewhere_from = load.asked_to;
    ask(sequence, load, 1);
  } else {
    finish(sequence, load, news);
  }
}

// More of the same store.
bool BlockExchange::may_ask(const Load& load) const {
  return !load.stopped && load.unsafe == 0 &&
         (load.elsewhere_from ? options_.now() >= elsewhere_rests_until_ : !rests());
}

bool BlockExchange::may_ask_elsewhere(const Load& load) const {
  return !load.stopped && load.unsafe == 0 && load.beginning.elsewhere && !load.elsewhere_from &&
         options_.now() >= elsewhere_rests_until_;
}

void BlockExchange::finish(SequenceId sequence, Load& load, std::vector<News>& news) {
  const auto missing =
      std::find(load.came.begin() + load.first, load.came.end(), false) - load.came.begin();
  const uint32_t rows = std::max(load.there, static_cast<uint32_t>(missing) * kBlockTokens);
  totals_.tokens_loaded += rows - load.there;
  load.told = true;
  if (load.unsafe > 0) {
    news.emplace_back(Loaded{.sequence = sequence, .rows = load.there, .region_safe = false});
    return;  // The load lives until its last block is released.
  }
  engine_.trim(sequence, rows);
  if (rows > load.there) {
    const std::span<const Token> tokens(*load.beginning.tokens);
    sequences_.append(sequence, tokens.subspan(load.there, rows - load.there),
                      &load.beginning.tenant);
    uint32_t& told = told_blocks_.at(sequence.value);
    told = std::max(
        told, std::min(rows / kBlockTokens, load.elsewhere_from.value_or(rows / kBlockTokens)));
  }
  loads_.erase(sequence);
  news.emplace_back(Loaded{.sequence = sequence, .rows = rows});
}

void BlockExchange::leave_alone(const Load& load, const Error& why) {
  Instant& until = load.elsewhere_from ? elsewhere_rests_until_ : rests_until_;
  if (options_.now() >= until) {
    ++totals_.failures;
    log::warn(std::string(load.elsewhere_from ? "a" : "the") +
              " store of KV is left alone for a while: " + why.message);
  }
  until = options_.now() + kRest;
}

// --- gives

void BlockExchange::tell_of_new_blocks() {
  if (rests()) {
    return;
  }
  for (uint32_t i = 0; i < told_blocks_.size(); ++i) {
    const SequenceId sequence{i};
    if (loads_.contains(sequence)) {
      continue;
    }
    const std::span<const BlockName> names = sequences_.names(sequence);
    while (told_blocks_[i] < names.size()) {
      const uint32_t from = told_blocks_[i];
      const auto to =
          static_cast<uint32_t>(std::min<size_t>(names.size(), from + limits::kBlocksTold));
      BlockNews held = news_of(BlockNews::Kind::kHeld);
      held.owner = sequences_.owner(sequence);
      held.before = from > 0 ? names[from - 1] : BlockName{};
      for (uint32_t block = from; block < to; ++block) {
        const TransferId id = next_transfer();
        held.blocks.push_back({.name = names[block], .transfer = id});
        told_[id] = {.sequence = sequence, .block = block, .name = names[block]};
        told_order_.push_back(id);
      }
      told_blocks_[i] = to;
      transfers_->tell(*store_, std::move(held));
    }
  }
  while (told_order_.size() > kToldMax) {
    told_.erase(told_order_.front());
    told_order_.pop_front();
  }
}

// The store waits for a block that it was told of.
void BlockExchange::give(TransferId id) {
  const Told told = told_.extract(id).mapped();
  const uint32_t end = (told.block + 1) * kBlockTokens;
  if (loads_.contains(told.sequence) || !sequences_.holds(told.sequence, told.block, told.name)) {
    return transfers_->refuse(id, {ErrorCode::kNotFound, "the rows are gone"});
  }
  const auto changed = std::make_shared<std::atomic<bool>>(false);
  given_[id] = {.sequence = told.sequence, .rows_end = end, .changed = changed};
  transfers_->offer(id, block_region(told.sequence, told.block), options_.now() + kGiven,
                    {.changed = changed});
  transfers_->commit(id, kBlockTokens, {});
}

// --- both

bool BlockExchange::take(const kvtransfer::EndpointEvent& event, std::vector<News>& news) {
  if (const auto* awaited = std::get_if<kvtransfer::OfferAwaited>(&event)) {
    if (!told_.contains(awaited->id)) {
      return given_.contains(awaited->id);
    }
    if (awaited->awaited) {
      give(awaited->id);
    }
    return true;
  }
  if (const auto* done = std::get_if<kvtransfer::OfferDone>(&event)) {
    const bool ours = given_.erase(done->id) > 0;
    totals_.tokens_given += ours ? kBlockTokens : 0;
    return ours;
  }
  if (const auto* failed = std::get_if<kvtransfer::OfferFailed>(&event)) {
    return given_.erase(failed->id) > 0;
  }
  if (const auto* done = std::get_if<kvtransfer::FetchDone>(&event)) {
    const auto asked = asked_.extract(done->id);
    if (asked) {
      Load& load = loads_.at(asked.mapped().sequence);
      load.came[asked.mapped().block] = done->rows == kBlockTokens;
      block_ended(asked.mapped().sequence, news);
    }
    return !asked.empty();
  }
  if (const auto* failed = std::get_if<kvtransfer::FetchFailed>(&event)) {
    const auto found = asked_.find(failed->id);
    if (found == asked_.end()) {
      return false;
    }
    const SequenceId sequence = found->second.sequence;
    Load& load = loads_.at(sequence);
    if (failed->error.code != ErrorCode::kNotFound) {
      // Rows of this block that were there may be overwritten.
      const uint32_t intact = std::min(load.there, found->second.block * kBlockTokens);
      load.there = intact;
      about_to_trim(sequence, intact);
      if (!load.stopped) {
        leave_alone(load, failed->error);
      }
    }
    if (failed->region_safe) {
      asked_.erase(found);
    } else {
      ++load.unsafe;
    }
    block_ended(sequence, news);
    return true;
  }
  if (const auto* released = std::get_if<kvtransfer::FetchReleased>(&event)) {
    const auto asked = asked_.extract(released->id);
    if (asked) {
      const SequenceId sequence = asked.mapped().sequence;
      Load& load = loads_.at(sequence);
      if (--load.unsafe == 0 && load.told) {
        loads_.erase(sequence);
        engine_.clear(sequence);
        sequences_.trim(sequence, 0);
        news.emplace_back(Released{sequence});
      }
    }
    return !asked.empty();
  }
  return std::holds_alternative<kvtransfer::BlocksTold>(event);  // No store: nothing to say.
}

}  // namespace pdjob::worker
