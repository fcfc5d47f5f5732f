// TokenChains: which tokens texts begin with, as far as engines have said. A text is known by its
// prompt_blocks(), its tokens by their token_blocks(); each block of text has those that end in it.
//
// Where in the tokens a block of text ends is estimated, by its bytes, until another prompt shows
// that it was too far: two prompts that begin alike have no more tokens in common than texts.
// What was used longest ago goes first. Value.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace pdjob::router {

class TokenChains {
 public:
  // About 200 bytes each. Requires: entries_max > 0.
  explicit TokenChains(uint32_t entries_max) : entries_max_(entries_max) {}

  struct Chain {
    std::vector<uint64_t> tokens;  // token_blocks() of the known beginning.
    uint32_t blocks = 0;           // Blocks of text in it.
  };
  Chain chain_of(std::span<const uint64_t> blocks) const;

  // A prompt of `bytes`, which `blocks` are the beginning of, has these tokens.
  void learn(std::span<const uint64_t> blocks, size_t bytes, std::span<const uint64_t> tokens);
  // They are of use again.
  void touch(std::span<const uint64_t> blocks);
  void clear();
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t block = 0;
    size_t begin = 0;  // Where in the chain `tokens` are.
    std::vector<uint64_t> tokens;
  };

  // The newest from now on.
  Entry& use(uint64_t block);

  const uint32_t entries_max_;
  std::list<Entry> ages_;  // The newest first.
  std::unordered_map<uint64_t, std::list<Entry>::iterator> entries_;
};

}  // namespace pdjob::router
