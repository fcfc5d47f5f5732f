// TokenChains: the tokens that texts begin with, as learnt from engines. A text's key is its
// prompt_blocks(), its tokens are token_blocks(). Each block of text stores the token blocks that
// end in it.
//
// Where a block of text ends in the tokens is estimated from its bytes. If another prompt shows
// that the estimate was too far, it is corrected: two prompts that begin alike share no more tokens
// than text. A full table evicts the least recently used entry. Value.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace pdjob::router {

class TokenChains {
 public:
  // About 200 bytes for each entry. Requires: entries_max > 0.
  explicit TokenChains(uint32_t entries_max) : entries_max_(entries_max) {}

  struct Chain {
    std::vector<uint64_t> tokens;  // token_blocks() of the known beginning.
    uint32_t blocks = 0;           // Number of text blocks in it.
  };
  Chain chain_of(std::span<const uint64_t> blocks) const;

  // Records the tokens of a prompt of `bytes` bytes that begins with `blocks`.
  void learn(std::span<const uint64_t> blocks, size_t bytes, std::span<const uint64_t> tokens);
  // Marks the blocks as recently used.
  void touch(std::span<const uint64_t> blocks);
  void clear();
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t block = 0;
    size_t begin = 0;  // Position of `tokens` in the chain.
    std::vector<uint64_t> tokens;
  };

  // Returns the block's entry and marks it as the most recently used one.
  Entry& use(uint64_t block);

  const uint32_t entries_max_;
  std::list<Entry> ages_;  // Most recently used first.
  std::unordered_map<uint64_t, std::list<Entry>::iterator> entries_;
};

}  // namespace pdjob::router
