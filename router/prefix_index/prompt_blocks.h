// A prompt as a chain of blocks. Each block has one hash, of itself and of all blocks before it.
// Two prompts share as many leading blocks as leading hashes. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/id.h"

namespace pdjob::router {

// Bytes of a prompt's JSON text, as the client wrote it: about 128 tokens.
inline constexpr size_t kPromptBlockBytes = 512;

// Returns the blocks of `prompt`, which is the value of `prompt` or `messages`. Leaves out the rest
// at its end, and what lies beyond limits::kPromptBlocksMax. A continued conversation begins with
// the text of its last turn, because clients append to the list of messages. Prompts share blocks
// only if their model and `shape` (RequestBody::shape) are equal.
std::vector<uint64_t> prompt_blocks(std::string_view model, std::string_view prompt,
                                    std::string_view shape = {});

// Tokens in a block of such a chain. The block sizes of engines are multiples of it.
inline constexpr size_t kTokenBlockTokens = 16;
// Returns the blocks of a prompt's tokens, without the rest at its end. `before`: the hash of the
// preceding block, or a hash that separates prompts of equal tokens.
std::vector<uint64_t> token_blocks(std::span<const uint32_t> tokens, uint64_t before);

// A table key for a block at a worker.
uint64_t key_of(uint64_t block, WorkerId worker);

// Returns how many of `count` leading blocks satisfy `has`. Requires: if a block does, so do all
// before it. Most workers have few or no blocks of a prompt, so the search begins near the start.
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

// Stable across processes, so several routers agree. Never 0, except for an empty text.
uint64_t name_hash(std::string_view text);

}  // namespace pdjob::router
