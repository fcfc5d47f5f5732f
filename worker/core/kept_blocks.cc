#include "worker/core/kept_blocks.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "common/check.h"
#include "common/random.h"

namespace pdjob::worker {
namespace {

// Reports the blocks of a chain for which `is_new` holds, each run of them in events of bounded
// size.
void append_stored(const OwnedPrompt& prompt, const std::vector<uint64_t>& hashes,
                   const auto& is_new, std::vector<openai::KvEvent>& events) {
  constexpr size_t kTokens = KeptBlocks::kBlockTokens;
  openai::KvBlocksStored run;
  const auto end_run = [&] {
    if (!run.hashes.empty()) {
      events.emplace_back(std::exchange(run, {}));
    }
  };
  for (size_t block = 0; block < hashes.size(); ++block) {
    if (!is_new(hashes[block])) {
      end_run();
      continue;
    }
    if (run.hashes.size() == KeptBlocks::kEventBlocksMax) {
      end_run();
    }
    if (run.hashes.empty()) {
      run.block_size = KeptBlocks::kBlockTokens;
      run.adapter = openai::tenant_adapter(prompt.tenant);
      run.parent = block > 0 ? std::optional(hashes[block - 1]) : std::nullopt;
    }
    run.hashes.push_back(hashes[block]);
    const auto begin = prompt.tokens.begin() + static_cast<ptrdiff_t>(block * kTokens);
    run.tokens.insert(run.tokens.end(), begin, begin + kTokens);
  }
  end_run();
}

}  // namespace

// Hashes may collide. Receivers also get the tokens, so a collision cannot mislead them.
std::vector<uint64_t> KeptBlocks::hashes_of(const PromptRows& kept) {
  std::vector<uint64_t> hashes;
  uint64_t hash = 0;
  for (const char c : kept.prompt->tenant) {
    hash = ~mix(hash + static_cast<uint8_t>(c) + 1);
  }
  for (uint32_t row = 0; row < kept.rows; ++row) {
    hash = mix(hash + static_cast<uint32_t>(kept.prompt->tokens[row]) + 1);
    if ((row + 1) % kBlockTokens == 0) {
      hashes.push_back(hash);
    }
  }
  return hashes;
}

void KeptBlocks::set(SequenceId sequence, const PromptRows& kept) {
  Kept& row = kept_[sequence];
  const Kept before = std::exchange(
      row,
      {.prompt = kept.prompt, .hashes = kept.prompt ? hashes_of(kept) : std::vector<uint64_t>()});
  for (const uint64_t hash : row.hashes) {
    blocks_[hash].sequences += 1;
  }
  for (const uint64_t hash : before.hashes) {
    if (--blocks_.at(hash).sequences == 0) {
      lost_.push_back(hash);
    }
  }
  gained_.push_back(sequence);
}

std::vector<openai::KvEvent> KeptBlocks::take_changes() {
  std::vector<openai::KvEvent> events;
  openai::KvBlocksRemoved removed;
  for (const uint64_t hash : std::exchange(lost_, {})) {
    const auto block = blocks_.find(hash);
    if (block == blocks_.end() || block->second.sequences > 0) {
      continue;  // Lost twice, or kept again.
    }
    if (block->second.told) {
      removed.hashes.push_back(hash);
    }
    blocks_.erase(block);
    if (removed.hashes.size() == kEventBlocksMax) {
      events.emplace_back(std::exchange(removed, {}));
    }
  }
  if (!removed.hashes.empty()) {
    events.emplace_back(std::move(removed));
  }
  for (const SequenceId sequence : std::exchange(gained_, {})) {
    const Kept& kept = kept_.at(sequence);
    if (kept.prompt != nullptr) {
      append_stored(
          *kept.prompt, kept.hashes,
          [this](uint64_t hash) { return !std::exchange(blocks_.at(hash).told, true); }, events);
    }
  }
  return events;
}

std::vector<openai::KvEvent> KeptBlocks::all() const {
  std::vector<openai::KvEvent> events = {openai::KvBlocksCleared{}};
  std::unordered_set<uint64_t> told;
  for (const auto& [sequence, kept] : kept_) {
    if (kept.prompt != nullptr) {
      append_stored(
          *kept.prompt, kept.hashes, [&told](uint64_t hash) { return told.insert(hash).second; },
          events);
    }
  }
  return events;
}

}  // namespace pdjob::worker
