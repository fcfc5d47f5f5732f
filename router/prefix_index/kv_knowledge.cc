#include "router/prefix_index/kv_knowledge.h"

#include <algorithm>
#include <variant>

#include "common/check.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
void KvKnowledge::begin(WorkerId worker, bool complete) {
  index_.forget(worker);
  complete_[worker] = complete;
}

void KvKnowledge::take(WorkerId worker, std::span<const openai::KvEvent> events) {
  PDJOB_CHECK(listens_to(worker), worker);
  const size_t adapters = index_.adapters();
  for (const openai::KvEvent& event : events) {
    if (const auto* stored = std::get_if<openai::KvBlocksStored>(&event)) {
      index_.stored(worker, *stored);
      // There may not have been room for all of it.
      complete_[worker] = complete_[worker] && !index_.full();
    } else if (const auto* removed = std::get_if<openai::KvBlocksRemoved>(&event)) {
      index_.removed(worker, *removed);
    } else {
      begin(worker, /*complete=*/true);
    }
  }
  if (index_.adapters() > adapters) {
    chains_.clear();  // A chain's model may turn out to be an adapter.
  }
}

void KvKnowledge::forget(WorkerId worker) {
  index_.forget(worker);
  complete_.erase(worker);
}

bool KvKnowledge::is_complete(WorkerId worker) const {
  const auto found = complete_.find(worker);
  return found != complete_.end() && found->second;
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
  const KvBlockIndex::Matched held = index_.matched(chain.tokens, worker);
  uint64_t matched = 0;
  if (!chain.tokens.empty()) {
    matched = chain.blocks * held.token_blocks / chain.tokens.size();
  }
  // Behind the known tokens, the only evidence is what was sent.
  const bool is_certain = is_complete(worker) && !held.all;
  return std::max(static_cast<uint32_t>(matched), is_certain ? under_way(blocks, worker) : sent);
}

uint32_t KvKnowledge::under_way(std::span<const uint64_t> blocks, WorkerId worker) const {
  return static_cast<uint32_t>(leading_blocks(blocks.size(), [&](size_t block) {
    return under_way_.contains(key_of(blocks[block], worker));
  }));
}

}  // namespace pdjob::router
