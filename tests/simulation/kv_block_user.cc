#include "tests/simulation/kv_block_user.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

namespace pdjob::simulation {
namespace {

using kvtransfer::BlockNews;
using kvtransfer::EndpointAddress;

constexpr size_t kPlaces = 6;
constexpr Duration kRead = std::chrono::milliseconds(2);
constexpr Duration kGiven = std::chrono::milliseconds(600);
constexpr size_t kLongList = 20;

std::string number_of(BlockName name) {
  return std::to_string(name.high) + "/" + std::to_string(name.low);
}

// The lies that show in the list, but not in what follows it.
void twist(BlockNews& news, KvLie lie) {
  switch (lie) {
    case KvLie::kCircle:
      news.blocks.push_back({.name = news.blocks.front().name,
                             .transfer = {.high = news.blocks.back().transfer.high,
                                          .low = mix(news.blocks.back().transfer.low)}});
      break;
    case KvLie::kBackwards:
      std::ranges::reverse(news.blocks);
      break;
    case KvLie::kBefore:
      news.before = news.blocks.back().name;
      break;
    case KvLie::kRows:
      news.rows = news.rows % kKvRowsMax + 1;
      break;
    case KvLie::kRowBytes:
      std::ranges::reverse(news.row_bytes);
      break;
    case KvLie::kUnsound:
      (news.blocks.front().name.low % 2 == 0 ? news.rows : news.row_bytes.back()) = 0;
      break;
    case KvLie::kOwner:
      news.owner = kvtransfer::BlockOwner{news.blocks.back().transfer.low};
      break;
    case KvLie::kSameId:
      news.blocks.back().transfer = news.blocks.front().transfer;
      break;
    case KvLie::kTooMany:
      while (news.blocks.size() < kLongList) {
        auto more = news.blocks.back();
        more.name.low = mix(more.name.low);
        more.transfer.low = mix(more.transfer.low);
        news.blocks.push_back(more);
      }
      break;
    default:
      break;
  }
}

}  // namespace

KvBlockUser::KvBlockUser(KvProcess& process, uint64_t seed)
    : process_(process), seed_(seed), random_(mix(seed)), targets_(process, kPlaces) {}

TransferId KvBlockUser::next_transfer() {
  return {.high = seed_, .low = mix(seed_ + ++transfers_made_)};
}

// --- gives

KvBlockUser::SharedBlock KvBlockUser::block_of(BlockName name, KvLie lie) {
  if (lie == KvLie::kContent) {
    auto made = std::make_shared<Block>();
    made->rows.fill(false_owner_of(name), 0, kKvRowsMax);
    return made;
  }
  SharedBlock& held = held_[name];
  if (held == nullptr) {
    held = std::make_shared<Block>();
    held->rows.fill(owner_of(name), 0, kKvRowsMax);
  }
  return held;
}

void KvBlockUser::hold(const KvPrompt& prompt, KvLie lie, const EndpointAddress& store) {
  BlockNews news{.kind = BlockNews::Kind::kHeld,
                 .owner = prompt.owner,
                 .holder = process_.address(),
                 .rows = prompt.rows,
                 .row_bytes = {kKvRowBytes.begin(), kKvRowBytes.end()}};
  // A store that has the beginning may not be told of it again.
  const bool all = lie != KvLie::kNone || random_.chance(0.5);
  for (const BlockName& name : prompt.names) {
    if (!all && news.blocks.empty() && held_.contains(name) && name != prompt.names.back()) {
      news.before = name;
      continue;
    }
    const bool reuses = lie == KvLie::kOldId && !told_.empty() && news.blocks.empty();
    const TransferId id = reuses ? told_.begin()->first : next_transfer();
    news.blocks.push_back({.name = name, .transfer = id});
    if (reuses) {  // The rows are those of another block.
      continue;
    }
    told_[id] = {.block = block_of(name, lie),
                 .rows = prompt.rows - (lie == KvLie::kFewRows ? 1 : 0)};
  }
  twist(news, lie);
  process_.trace("holds " + number_of(news.blocks.back().name) + ", lie " +
                 std::to_string(static_cast<uint32_t>(lie)));
  process_.endpoint().receiver().tell(store, std::move(news));
}

void KvBlockUser::compute_over() {
  if (held_.empty()) {
    return;
  }
  const auto chosen = std::next(held_.begin(), static_cast<ptrdiff_t>(random_.below(held_.size())));
  process_.trace("computes over " + number_of(chosen->first));
  compute_over(SharedBlock(chosen->second));
}

void KvBlockUser::compute_over(const SharedBlock& block) {
  for (const auto& [id, given] : given_) {
    if (given.block == block) {
      given.changed->store(true);
    }
  }
  block->changed = true;
  block->rows.fill(random_.next(), 0, kKvRowsMax);
  std::erase_if(held_, [&](const auto& held) { return held.second == block; });
}

bool KvBlockUser::on(const kvtransfer::OfferAwaited& event) {
  const auto found = told_.find(event.id);
  if (found == told_.end() || !event.awaited) {
    return found != told_.end();
  }
  const Told told = std::move(found->second);
  told_.erase(found);
  kvtransfer::Sender& sender = process_.endpoint().sender();
  if (told.block->changed) {
    sender.refuse(event.id, {ErrorCode::kNotFound, "the rows are gone"});
    return true;
  }
  const auto changed = std::make_shared<std::atomic<bool>>(false);
  given_[event.id] = {.block = told.block, .changed = changed};
  const Instant now = process_.loop().now();
  sender.offer(event.id, told.block->rows.region(), now + kGiven, {.changed = changed});
  sender.commit(event.id, told.rows, {}, now);
  if (process_.scene().given_rows_change()) {
    process_.loop().call_at(now + Duration(random_.below(kRead.count())),
                            [this, block = told.block] { compute_over(block); });
  }
  process_.scene().worker_gives(process_.name());
  return true;
}

// --- takes

void KvBlockUser::want(const KvPrompt& prompt, MayMiss may_miss, const EndpointAddress& store,
                       Duration within) {
  ask(std::make_shared<Load>(
          Load{.prompt = prompt, .may_miss = may_miss, .store = store, .within = within}),
      1);
}

void KvBlockUser::ask(const SharedLoad& load, size_t count) {
  const std::vector<BlockName>& names = load->prompt.names;
  BlockNews news{.kind = BlockNews::Kind::kWanted,
                 .rows = load->prompt.rows,
                 .row_bytes = {kKvRowBytes.begin(), kKvRowBytes.end()},
                 .before = load->asked > 0 ? names[load->asked - 1] : BlockName{}};
  const size_t from = load->asked;
  load->asked += std::min({count, targets_.free(), names.size() - from});
  if (load->asked == from) {
    return;
  }
  for (size_t i = from; i < load->asked; ++i) {
    news.blocks.push_back({.name = names[i], .transfer = next_transfer()});
  }
  const std::vector<kvtransfer::NamedBlock> blocks = news.blocks;
  process_.endpoint().receiver().tell(load->store, std::move(news));
  for (const auto& [name, id] : blocks) {
    asked_[id] = load;
    const KvScene& scene = process_.scene();
    targets_.fetch(id, load->store,
                   {.rows = load->prompt.rows,
                    .owners = scene.false_names.contains(name) ? scene.block_owners
                                                               : std::vector{owner_of(name)},
                    .tail = {}},
                   process_.loop().now() + load->within);
  }
}

bool KvBlockUser::on(const kvtransfer::FetchDone& event) {
  if (!targets_.take(event)) {
    return false;
  }
  process_.trace("block " + event.id.to_string() + " comes");
  ++process_.scene().blocks_loaded;
  const SharedLoad load = asked_.extract(event.id).mapped();
  if (load->asked == 1) {
    ask(load, load->prompt.names.size());
  }
  return true;
}

bool KvBlockUser::on(const kvtransfer::FetchFailed& event) {
  if (!targets_.take(event)) {
    return false;
  }
  process_.trace("block " + event.id.to_string() + " does not come: " + event.error.message +
                 (event.region_safe ? "" : ", its rows are held"));
  KvScene& scene = process_.scene();
  const bool missing = event.error.code == ErrorCode::kNotFound;
  ++(missing ? scene.blocks_missing : scene.blocks_failed);
  const SharedLoad load = asked_.extract(event.id).mapped();
  process_.expect(load->may_miss == MayMiss::kYes,
                  "a block that was told of comes, but:", event.error.message);
  process_.expect(scene.blocks_fail || missing || event.error.code == ErrorCode::kCancelled,
                  "a store that does not fail answers, but:", event.error.message);
  return true;
}

void KvBlockUser::cancel() {
  for (const TransferId& id : targets_.ids()) {
    process_.endpoint().receiver().cancel(id);
  }
}

bool KvBlockUser::take(const kvtransfer::EndpointEvent& event) {
  return std::visit([this](const auto& each) { return on(each); }, event);
}

void KvBlockUser::check_idle() const {
  process_.expect(given_.empty(), "every block that is given ends, but", given_.size(), "live");
  process_.expect(asked_.empty(), "every wish is answered, but", asked_.size(), "are not");
  targets_.check_idle();
}

}  // namespace pdjob::simulation
