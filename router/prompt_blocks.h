// A prompt as a chain of blocks: one hash for each, of the block and of all before it. Two prompts
// have as many leading blocks in common as they have leading hashes. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/id.h"

namespace pdjob::router {

// Of the JSON text of a prompt, as the client wrote it: about 128 tokens.
inline constexpr size_t kPromptBlockBytes = 512;

// `prompt` is the value of `prompt` or `messages`; what is left over at its end is in no block, nor
// is what lies beyond limits::kPromptBlocksMax. A conversation that goes on begins with the text of
// its last turn, since clients append to the list of messages. Different models share nothing, nor
// do prompts of different `shape` (RequestBody::shape).
std::vector<uint64_t> prompt_blocks(std::string_view model, std::string_view prompt,
                                    std::string_view shape = {});

// The tokens of a prompt as such a chain: blocks of so many of them, which those of engines are
// multiples of.
inline constexpr size_t kTokenBlockTokens = 16;
// `before`: of the block before the first one, or what tells apart prompts of equal tokens. What is
// left over at the end is in no block.
std::vector<uint64_t> token_blocks(std::span<const uint32_t> tokens, uint64_t before);

// A block at a worker, for tables of both.
uint64_t key_of(uint64_t block, WorkerId worker);

// How many of `count` blocks, from the first one on, `has` says yes to. Requires: who has one has
// all before it. Most workers have few blocks of a prompt or none, so it looks near the beginning
// first.
template <typename Has>
size_t leading_blocks(size_t count, const Has& has) {
  size_t known = 0;
  size_t step = 1;
  while (known + step <= count && has(known + step - 1)) {
    known += step;
    step *= 2;
  }
  size_t end = std::min(count, known + step - 1);
  while (known < end) {
    const size_t middle = (known + end) / 2;
    if (has(middle)) {
      known = middle + 1;
    } else {
      end = middle;
    }
  }
  return known;
}

// Stable across processes: several routers agree. Never 0 for a text that is not empty.
uint64_t name_hash(std::string_view text);

}  // namespace pdjob::router
