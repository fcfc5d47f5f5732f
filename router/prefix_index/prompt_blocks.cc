#include "router/prefix_index/prompt_blocks.h"

#include <algorithm>

#include <xxhash.h>

#include "common/limits.h"
#include "common/random.h"

namespace pdjob::router {

std::vector<uint64_t> prompt_blocks(std::string_view model, std::string_view prompt,
                                    std::string_view shape) {
  const size_t count = std::min(prompt.size() / kPromptBlockBytes, limits::kPromptBlocksMax);
  std::vector<uint64_t> blocks;
  blocks.reserve(count);
  uint64_t chain = name_hash(model) + 31 * name_hash(shape);
  for (size_t block = 0; block < count; ++block) {
    chain =
        XXH3_64bits_withSeed(prompt.data() + block * kPromptBlockBytes, kPromptBlockBytes, chain);
    blocks.push_back(chain);
  }
  return blocks;
}

std::vector<uint64_t> token_blocks(std::span<const uint32_t> tokens, uint64_t before) {
  std::vector<uint64_t> blocks;
  blocks.reserve(tokens.size() / kTokenBlockTokens);
  for (; tokens.size() >= kTokenBlockTokens; tokens = tokens.subspan(kTokenBlockTokens)) {
    before = XXH3_64bits_withSeed(tokens.data(), kTokenBlockTokens * sizeof tokens[0], before);
    blocks.push_back(before);
  }
  return blocks;
}

uint64_t key_of(uint64_t block, WorkerId worker) { return mix(mix(block) + worker.value); }

uint64_t name_hash(std::string_view text) {
  return text.empty() ? 0 : std::max<uint64_t>(XXH3_64bits(text.data(), text.size()), 1);
}

}  // namespace pdjob::router
