#include "router/prefix_index/kv_knowledge.h"

#include <algorithm>
#include <variant>

#include "common/check.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
namespace {

// The index knows each rank's cache under an id of its own.
WorkerId cache_of(WorkerId worker, uint32_t rank) {
  return WorkerId{worker.value * KvKnowledge::kRanksMax + rank};
}

}  // namespace

void KvKnowledge::begin(WorkerId worker, bool complete, uint32_t rank) {
  PDJOB_CHECK(rank < kRanksMax, rank);
  index_.forget(cache_of(worker, rank));
  std::vector<bool>& ranks = complete_[worker];
  ranks.resize(std::max<size_t>(ranks.size(), rank + 1));
  ranks[rank] = complete;
}

void KvKnowledge::take(WorkerId worker, std::span<const openai::KvEvent> events, uint32_t rank) {
  PDJOB_CHECK(rank < ranks(worker), worker, rank);
  const WorkerId cache = cache_of(worker, rank);
  const size_t adapters = index_.adapters();
  for (const openai::KvEvent& event : events) {
    if (const auto* stored = std::get_if<openai::KvBlocksStored>(&event)) {
      index_.stored(cache, *stored);
      // There may not have been room for all of it.
      complete_[worker][rank] = complete_[worker][rank] && !index_.full();
    } else if (const auto* removed = std::get_if<openai::KvBlocksRemoved>(&event)) {
      index_.removed(cache, *removed);
    } else {
      begin(worker, /*complete=*/true, rank);
    }
  }
  if (index_.adapters() > adapters) {
    chains_.clear();  // A chain's model may turn out to be an adapter.
  }
}

void KvKnowledge::forget(WorkerId worker) {
  for (uint32_t rank = 0; rank < ranks(worker); ++rank) {
    index_.forget(cache_of(worker, rank));
  }
  complete_.erase(worker);
}

uint32_t KvKnowledge::ranks(WorkerId worker) const {
  const auto found = complete_.find(worker);
  return found == complete_.end() ? 0 : static_cast<uint32_t>(found->second.size());
}

uint32_t KvKnowledge::held(WorkerId worker) const {
  uint32_t held = 0;
  for (uint32_t rank = 0; rank < ranks(worker); ++rank) {
    held += index_.held(cache_of(worker, rank));
  }
  return held;
}

bool KvKnowledge::is_complete(WorkerId worker) const {
  const auto found = complete_.find(worker);
  return found != complete_.end() && std::ranges::find(found->second, false) == found->second.end();
}

bool KvKnowledge::asks(std::span<const uint64_t> blocks, WorkerId worker) {
  return !blocks.empty() && listens_to(worker) && chain_of(blocks).blocks < blocks.size() &&
         asked_.insert(blocks.back()).second;
}

void KvKnowledge::learn(const Asker& asker, std::span<const uint64_t> blocks, size_t bytes,
                        std::span<const uint32_t> tokens) {
  PDJOB_CHECK(!blocks.empty());
  asked_.erase(blocks.back());
  if (!tokens.empty()) {
    chains_.learn(blocks, bytes, token_blocks(tokens, index_.root_of(asker.model, asker.tenant)));
  }
}

void KvKnowledge::note_sent(std::span<const uint64_t> blocks, WorkerId worker) {
  if (!listens_to(worker)) {
    return;
  }
  chains_.touch(blocks);
  for (const uint64_t block : blocks) {
    under_way_[key_of(block, worker)] += 1;
  }
}

// Ignores prompts that were sent before this worker's events were followed.
void KvKnowledge::note_ended(std::span<const uint64_t> blocks, WorkerId worker) {
  for (const uint64_t block : blocks) {
    const auto found = under_way_.find(key_of(block, worker));
    if (found != under_way_.end() && --found->second == 0) {
      under_way_.erase(found);
    }
  }
}

uint32_t KvKnowledge::matched(std::span<const uint64_t> blocks, const TokenChains::Chain& chain,
                              WorkerId worker, uint32_t sent) const {
  if (!listens_to(worker)) {
    return sent;
  }
  const KvBlockIndex::Matched held = matched_tokens(chain.tokens, worker);
  uint64_t matched = 0;
  if (!chain.tokens.empty()) {
    matched = chain.blocks * held.token_blocks / chain.tokens.size();
  }
  // Behind the known tokens, the only evidence is what was sent.
  const bool is_certain = is_complete(worker) && !held.all;
  return std::max(static_cast<uint32_t>(matched), is_certain ? under_way(blocks, worker) : sent);
}

KvBlockIndex::Matched KvKnowledge::matched_tokens(std::span<const uint64_t> tokens,
                                                  WorkerId worker) const {
  KvBlockIndex::Matched mean{.token_blocks = 0, .all = true};
  const uint32_t ranks = this->ranks(worker);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const KvBlockIndex::Matched held = index_.matched(tokens, cache_of(worker, rank));
    mean.token_blocks += held.token_blocks;
    mean.all = mean.all && held.all;
  }
  mean.token_blocks /= ranks;
  return mean;
}

uint32_t KvKnowledge::under_way(std::span<const uint64_t> blocks, WorkerId worker) const {
  return static_cast<uint32_t>(leading_blocks(blocks.size(), [&](size_t block) {
    return under_way_.contains(key_of(blocks[block], worker));
  }));
}

}  // namespace pdjob::router
