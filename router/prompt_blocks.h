// A prompt as a chain of blocks: one hash for each, of the block and of all before it. Two prompts
// have as many leading blocks in common as they have leading hashes. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pdjob::router {

// Of the JSON text of a prompt, as the client wrote it: about 128 tokens.
inline constexpr size_t kPromptBlockBytes = 512;

// `prompt` is the value of `prompt` or `messages`; what is left over at its end is in no block, nor
// is what lies beyond limits::kPromptBlocksMax. A conversation that goes on begins with the text of
// its last turn, since clients append to the list of messages. Different models share nothing.
std::vector<uint64_t> prompt_blocks(std::string_view model, std::string_view prompt);

// Stable across processes: several routers agree. Never 0 for a text that is not empty.
uint64_t name_hash(std::string_view text);

}  // namespace pdjob::router
