// Names of blocks: what the KV rows of some tokens are, whoever computed them. A row depends on all
// tokens before it, so a name covers them, too. Two tenants never have a name in common, and nobody
// can make two beginnings with one name (BLAKE2b, cut to 128 bits). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/generation.h"
#include "common/id.h"
#include "kvtransfer/link/link_message.h"

namespace pdjob::worker {

// Tokens of a block. Smaller blocks share more of two prompts, and cost more messages.
inline constexpr uint32_t kBlockTokens = 64;

// Whose blocks they are, for stores that share their room between tenants. No tenant: 0.
kvtransfer::BlockOwner owner_of(std::string_view tenant);
// What stands before the first block of a beginning. `meaning`: all that determines the bits of a
// row, except tokens.
BlockName beginning(std::string_view meaning, std::string_view tenant);
// The name of the block of `tokens` behind the block `before`.
BlockName block_behind(const BlockName& before, std::span<const Token> tokens);

}  // namespace pdjob::worker
