#include "router/prompt_blocks.h"

#include <algorithm>

#include <xxhash.h>

#include "common/limits.h"

namespace pdjob::router {

std::vector<uint64_t> prompt_blocks(std::string_view model, std::string_view prompt) {
  const size_t count = std::min(prompt.size() / kPromptBlockBytes, limits::kPromptBlocksMax);
  std::vector<uint64_t> blocks;
  blocks.reserve(count);
  uint64_t chain = name_hash(model);
  for (size_t block = 0; block < count; ++block) {
    chain =
        XXH3_64bits_withSeed(prompt.data() + block * kPromptBlockBytes, kPromptBlockBytes, chain);
    blocks.push_back(chain);
  }
  return blocks;
}

uint64_t name_hash(std::string_view text) {
  return text.empty() ? 0 : std::max<uint64_t>(XXH3_64bits(text.data(), text.size()), 1);
}

}  // namespace pdjob::router
