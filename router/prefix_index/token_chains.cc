#include "router/prefix_index/token_chains.h"

#include <algorithm>

#include "common/check.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {

TokenChains::Chain TokenChains::chain_of(std::span<const uint64_t> blocks) const {
  Chain chain;
  for (const uint64_t block : blocks) {
    const auto found = entries_.find(block);
    if (found == entries_.end() || found->second->begin != chain.tokens.size()) {
      break;
    }
    const std::vector<uint64_t>& tokens = found->second->tokens;
    chain.tokens.insert(chain.tokens.end(), tokens.begin(), tokens.end());
    chain.blocks += 1;
  }
  return chain;
}

void TokenChains::learn(std::span<const uint64_t> blocks, size_t bytes,
                        std::span<const uint64_t> tokens) {
  PDJOB_CHECK(bytes >= blocks.size() * kPromptBlockBytes, bytes, blocks.size());
  blocks = blocks.first(std::min<size_t>(blocks.size(), entries_max_));
  std::vector<size_t> ends;
  size_t begin = 0;
  for (size_t block = 0; block < blocks.size(); ++block) {
    const size_t text_left = bytes - block * kPromptBlockBytes;
    size_t end = begin + (tokens.size() - begin) * kPromptBlockBytes / text_left;
    const auto known = entries_.find(blocks[block]);
    if (known != entries_.end() && known->second->begin == begin) {
      const std::vector<uint64_t>& others = known->second->tokens;
      const auto ours = tokens.subspan(begin);
      const auto common = std::ranges::mismatch(others, ours).in1 - others.begin();
      // Nothing in common: the engine's tokenizer has changed.
      end = common == 0 && !others.empty() ? end : begin + static_cast<size_t>(common);
    }
    ends.push_back(end);
    begin = end;
  }
  // Use ends before their beginnings, as in PrefixIndex.
  for (size_t block = blocks.size(); block-- > 0;) {
    const size_t first = block == 0 ? 0 : ends[block - 1];
    const auto own = tokens.subspan(first, ends[block] - first);
    Entry& entry = use(blocks[block]);
    entry.begin = first;
    entry.tokens.assign(own.begin(), own.end());
  }
}

void TokenChains::touch(std::span<const uint64_t> blocks) {
  for (size_t block = blocks.size(); block-- > 0;) {
    if (const auto known = entries_.find(blocks[block]); known != entries_.end()) {
      ages_.splice(ages_.begin(), ages_, known->second);
    }
  }
}

void TokenChains::clear() {
  ages_.clear();
  entries_.clear();
}

TokenChains::Entry& TokenChains::use(uint64_t block) {
  const auto known = entries_.find(block);
  if (known != entries_.end()) {
    ages_.splice(ages_.begin(), ages_, known->second);
    return ages_.front();
  }
  if (entries_.size() == entries_max_) {
    entries_.erase(ages_.back().block);
    ages_.pop_back();
  }
  ages_.push_front({.block = block});
  entries_[block] = ages_.begin();
  return ages_.front();
}

}  // namespace pdjob::router
